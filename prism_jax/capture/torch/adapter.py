"""Private parts of torch that a capture needs: its fake process group, and places that fake tensors must not reach.

One file, so that a new version of torch is one file to read again. Written for torch 2.5 to 2.14.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.parallel.distributed as ddp
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator

# pyright: reportMissingImports=false


DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)


@contextmanager
def fake_world(rank: int, sizes: dict[str, int], world: int) -> Iterator[DeviceMesh]:
    """A process group of `world` ranks in which nothing is sent, and its mesh."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    finally:
        dist.destroy_process_group()


@contextmanager
def fake_tensors(paused: Callable[[], Any], reduced: Callable[[Any], None]) -> Iterator[FakeTensorMode]:
    """Tensors without memory, and torch made to work with them.

    Args:
        paused: makes a context in which nothing is recorded.
        reduced: told the buffer of gradients that DistributedDataParallel reduces.
    """
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(patch.object(torch.utils, "weakref", _NoWeakReferences()))
        for name in ("__init__", "__getitem__", "_flatten", "_get_all_submeshes"):
            if hasattr(DeviceMesh, name):
                enter(patch.object(DeviceMesh, name, _real(getattr(DeviceMesh, name))))
        enter(patch.object(ddp, "_verify_param_shape_across_processes", _nothing))
        enter(patch.object(ddp, "_sync_module_states", _nothing))
        enter(patch.object(ddp.DistributedDataParallel, "__init__", _with_hook(reduced)))
        for name in ("_propagate_tensor_meta_non_cached", "propagate_op_sharding_non_cached"):
            if hasattr(ShardingPropagator, name):
                enter(patch.object(ShardingPropagator, name, _unseen(getattr(ShardingPropagator, name), paused)))
        yield enter(FakeTensorMode())


class _NoWeakReferences:
    """`weakref` for `torch.utils.swap_tensors`, which refuses tensors that a fake mode remembers weakly."""

    def __getattr__(self, name: str) -> Any:
        return getattr(weakref, name)

    def getweakrefs(self, _: Any) -> list[Any]:
        return []


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _real(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of a mesh, which reads its own numbers of ranks."""

    @wraps(method)
    def outside(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return method(*args, **kwargs)

    return outside


def _unseen(method: Callable[..., Any], paused: Callable[[], Any]) -> Callable[..., Any]:
    """A method of DTensor that tries operations on whole shapes to see how they are sharded."""

    @wraps(method)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with paused():
            return method(*args, **kwargs)

    return quiet


def _with_hook(reduced: Callable[[Any], None]) -> Callable[..., None]:
    """DistributedDataParallel whose buckets are reduced through us: its own way asks for a result that a fake group lacks."""
    original = ddp.DistributedDataParallel.__init__

    def hook(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        reduced(bucket.buffer())
        dist.all_reduce(bucket.buffer(), group=group)
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    hook.__annotations__ = {
        "bucket": dist.GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }  # are compared as objects

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.register_comm_hook(self.process_group, hook)

    return init


def is_distributed(types: Sequence[type]) -> bool:
    """Whether an operation is on DTensors, which run it again on their local parts."""
    return any(issubclass(one, DTensor) for one in types)


def group_ranks(arguments: Sequence[Any]) -> list[int]:
    """Ranks of the process group among the arguments of a collective, as an object or by name."""
    for value in arguments:
        if isinstance(value, str):
            try:
                return dist.get_process_group_ranks(dist.distributed_c10d._resolve_process_group(value))
            except (KeyError, ValueError, RuntimeError):
                continue
        if isinstance(value, torch.ScriptObject):
            try:
                return dist.get_process_group_ranks(dist.ProcessGroup.unbox(value))
            except (TypeError, ValueError, RuntimeError):
                continue
    return list(range(dist.get_world_size()))


def backward_node() -> Any:
    """The node of the autograd graph that runs, None outside a backward pass."""
    return torch._C._current_autograd_node()


def next_sequence() -> int:
    """Number of the next node that the forward pass makes."""
    return torch._C._autograd._get_sequence_nr()


def sequence_of(node: Any) -> int:
    """Number of a node; nodes of no operation have very large ones."""
    return node._sequence_nr()
