"""Records every operation that torch dispatches while a step runs, who made its inputs, and in which module and pass it is.

Of every tensor it is told what an ATen operation reads and what a kernel may do with it, as `chains` needs it. Collectives are
those that the dispatcher sees: `c10d` (in place) and `_c10d_functional` (DTensor).

Bytes are those that `system/network.py` defines: the buffer of an all-reduce, the gathered size of an all-gather, the size
before reduction of a reduce-scatter, what one rank sends of an all-to-all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from ...workload.captured.chains import COPY, KERNEL, LOOKUP, ONCE, OTHER, POINTWISE, REDUCTION, SCATTER, SUM, Access
from ...workload.captured.program import OWN_KERNELS, CapturedComm, CapturedOp, CapturedRow
from . import adapter
from .adapter import group_ranks
from .contract import group_of
from .op_sizes import (
    FILLS,
    LOOKUPS,
    REDUCTIONS,
    UNREAD,
    added,
    dtype_of,
    is_added_in_place,
    mutated,
    op_rows,
    read_tensors,
    stored_bytes,
    tensors,
    unique,
)
from .routing import EvenRouting

# pyright: reportMissingImports=false


_COPIES = ("cat", "clone", "copy_", "stack", "contiguous", "_to_copy")  # where the format stays
_SCATTERS = ("index_add_", "index_add", "index_put_", "index_put", "_index_put_impl_", "scatter_add_", "scatter_add")
# Operations without the tag of pointwise ones that make each element from those at its place.
_ELEMENTWISE = (
    "gelu_backward", "silu_backward", "threshold_backward", "nll_loss_backward", "_to_copy", "__or__", "__and__",
)  # fmt: skip
_RANDOM = ("native_dropout", "native_dropout_backward")


def role_of(func: Any, args: Sequence[Any], row: CapturedOp) -> str:
    """Returns the role that an operation may have in a kernel, as one of the words of `chains`."""
    name = func.overloadpacket.__name__
    if row.kind in OWN_KERNELS:
        return KERNEL
    if name in LOOKUPS:
        return LOOKUP
    if name in _SCATTERS:
        return SCATTER
    if name in _COPIES and _keeps_format(name, args, row):
        return COPY
    if name == "add_":
        return SUM
    if name in FILLS:
        return ONCE if func._schema.is_mutable else POINTWISE
    if torch.Tag.pointwise in func.tags or name in (*_ELEMENTWISE, *_RANDOM):
        is_pure = not func._schema.is_mutable and torch.Tag.nondeterministic_seeded not in func.tags
        return POINTWISE if is_pure and name not in _RANDOM else ONCE
    return REDUCTION if name in REDUCTIONS else OTHER


def _keeps_format(name: str, args: Sequence[Any], row: CapturedOp) -> bool:
    source = args[1] if name == "copy_" else next(iter(tensors(args)), None)
    if not isinstance(source, Tensor):
        return False
    if name == "copy_":
        return source.dtype == args[0].dtype
    return name != "_to_copy" or row.n_bytes == 2.0 * row.output_bytes


def read_bytes(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Iterator[tuple[Tensor, float]]:
    """Tensors that an operation reads, with the bytes of each; they add up to the count of `op_rows`."""
    name = func.overloadpacket.__name__
    written = sum(map(stored_bytes, unique(tensors(out))))
    skipped = args[UNREAD[name]] if name in UNREAD else None
    in_place = is_added_in_place(name, args)
    for number, one in enumerate(read_tensors(name, args, kwargs)):
        if one is skipped:
            continue
        n_bytes = stored_bytes(one)
        if name in LOOKUPS and number == 0:
            n_bytes = written
        if in_place:
            rows = stored_bytes(added(name, args))
            n_bytes = rows if number == 0 or one is added(name, args) else 0.0
        yield one, n_bytes


def extent(tensor: Tensor) -> tuple[int, int, int]:
    """The memory that a tensor lies in, and between which bytes of it."""
    wide = tensor.element_size()
    start = int(tensor.storage_offset()) * wide
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size)
    return tensor.untyped_storage()._cdata, start, start + (last + 1) * wide


NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
WAIT = "wait_tensor"
# Collective, whether its size is that of what it writes (True) or of what it reads -> operations.
_OPERATIONS = {
    ("all_reduce", False): (
        "allreduce_", "allreduce_coalesced_", "all_reduce", "all_reduce_", "all_reduce_coalesced", "reduce_",
    ),
    ("all_gather", True): (
        "_allgather_base_", "allgather_", "allgather_into_tensor_coalesced_", "all_gather_into_tensor",
        "all_gather_into_tensor_out", "all_gather_into_tensor_coalesced", "gather_",
    ),
    ("reduce_scatter", False): (
        "_reduce_scatter_base_", "reduce_scatter_", "reduce_scatter_tensor_coalesced_", "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
    ),
    ("all_to_all", False): ("alltoall_base_", "alltoall_", "all_to_all_single", "shard_dim_alltoall"),
    ("broadcast", False): ("broadcast_", "broadcast", "scatter_"),
    ("send", False): ("send",),
    ("recv", False): ("recv_",),
}  # fmt: skip
_KINDS = {name: kind for kind, names in _OPERATIONS.items() for name in names}
_WRITTEN_FIRST = ("_base_", "allgather_", "alltoall_", "reduce_scatter_", "gather_", "scatter_")


def is_comm(func: Any) -> bool:
    """Whether an operation is a collective."""
    return func.namespace in NAMESPACES and func.overloadpacket.__name__ in _KINDS


def comm_row(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any, axes: Mapping[str, int]) -> CapturedComm:
    """The row of a collective, with phase F and no module."""
    name = func.overloadpacket.__name__
    collective, by_output = _KINDS[name]
    read, written = _buffers(name, func, args, out)
    sized = written if by_output else read
    ranks = group_ranks([*args, *kwargs.values()])
    group = group_of(axes, ranks)
    n_bytes = float(sum(map(stored_bytes, sized)))
    size = 2 if collective in ("send", "recv") else group.ranks
    return CapturedComm(collective, group.axis, size, group.stride, n_bytes, dtype_of(sized), "F")


def comm_outputs(func: Any, args: Sequence[Any], out: Any) -> list[Any]:
    """Tensors that a collective writes."""
    return _buffers(func.overloadpacket.__name__, func, args, out)[1]


def _buffers(name: str, func: Any, args: Sequence[Any], out: Any) -> tuple[list[Any], list[Any]]:
    """Returns the tensors that are read, and those that are written."""
    if func.namespace != "c10d":
        return list(tensors(args)), list(tensors(out))
    first = list(tensors(args[0]))
    if name.startswith(_WRITTEN_FIRST) or name.endswith("_base_"):
        return list(tensors(args[1])), first
    return first, first


_SILENT = ("prim", "profiler", "debugprims")
_WRAPPERS = re.compile(r"(?<![^.])(module|_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)(\.|$)")
_FSDP_IN, _FSDP_OUT = "fsdp::all_gather_copy_in", "fsdp::chunk_cat"
_SIDE = (_FSDP_IN,)  # FSDP runs it on a stream of its own
NO_PRODUCERS: frozenset[int] = frozenset()


@dataclass(eq=False)
class RecordedEvent:
    """One row that is being recorded.

    Attributes:
        row: as far as it is known when it runs.
        phase: F, B or opt.
        module: path of the layer.
        node: number of the autograd node that ran it; None outside a backward pass.
        inputs: indices of the events that made what it reads.
        recomputed: forward operation that runs again in the backward pass.
        wait: of a collective, the first event that reads what it made.
        role: part that it may have in a kernel, as `chains` says.
        reads: its inputs, for chains.
    """

    row: CapturedRow
    phase: str
    module: str
    node: int | None
    inputs: frozenset[int]
    recomputed: bool = False
    wait: RecordedEvent | None = None
    purpose: str = ""
    consumers: list[int] = field(default_factory=list)
    role: str = OTHER
    reads: tuple[Access, ...] = ()


class Recorder(TorchDispatchMode):
    """Records while it is entered; see `phase` and `paused`."""

    def __init__(self, axes: Mapping[str, int]) -> None:
        super().__init__()
        self.axes = axes
        self.routing = EvenRouting()
        self.events: list[RecordedEvent] = []
        self._phase = "F"
        self._is_paused = False
        self._modules: list[str] = []
        self._names: dict[int, str] = {}
        self._module_of_node: dict[int, str] = {}
        self._producers = WeakIdKeyDictionary()
        self._next_purpose = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._is_paused or func.namespace in _SILENT:
            return func(*args, **kwargs)
        if adapter.is_distributed(types):
            return NotImplemented
        out = self.routing.answer(func, args, kwargs)
        if out is NotImplemented:
            out = func(*args, **kwargs)
        self.routing.learn(func, args, out)
        self._record(func, args, kwargs, out)
        return out

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses recording inside the context."""
        before, self._is_paused = self._is_paused, True
        try:
            yield
        finally:
            self._is_paused = before

    @contextmanager
    def phase(self, phase: str, model: torch.nn.Module) -> Iterator[None]:
        """Records all that runs inside the context as the pass F, B or opt of a model."""
        self._phase = phase
        self._names = {id(module): _WRAPPERS.sub("", name) for name, module in model.named_modules()}
        before = torch.nn.modules.module.register_module_forward_pre_hook(self._enter_module)
        after = torch.nn.modules.module.register_module_forward_hook(self._leave_module, always_call=True)
        try:
            with self:
                yield
        finally:
            before.remove()
            after.remove()
            self._modules.clear()

    def reduces(self, _: torch.Tensor) -> None:
        """The next collective carries gradients."""
        self._next_purpose = "gradients"

    def custom(self, row: CapturedOp, role: str, read: Mapping[torch.Tensor, float], written: Any) -> None:
        """Records an operation that the dispatcher does not see as one; `read`: tensor -> bytes read of it."""
        if not self._is_paused:
            self._note_node()
            accesses = self._accesses(read.items())
            self._add(row, self._made_by(list(read)), written, role, accesses)

    def producers_of(self, tensor: torch.Tensor) -> frozenset[int]:
        """Indices of the events that made a tensor."""
        return self._producers.get(tensor, NO_PRODUCERS)

    def _enter_module(self, module: torch.nn.Module, _: Any) -> None:
        self._modules.append(self._names.get(id(module), self._modules[-1] if self._modules else ""))

    def _leave_module(self, module: torch.nn.Module, _: Any, __: Any) -> None:
        if self._modules:
            self._modules.pop()

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        self._note_node()
        inputs = self._made_by((args, kwargs))
        if func.namespace in NAMESPACES:
            if func.overloadpacket.__name__ == WAIT:
                self._remember(out, inputs)
            elif is_comm(func):
                self._add_comm(func, args, kwargs, out, inputs)
            return
        rows = op_rows(func, args, kwargs, out)
        if not rows:
            self._remember(out, inputs)
            return
        role, reads = role_of(func, args, rows[0]), self._accesses(read_bytes(func, args, kwargs, out))
        for index, row in enumerate(rows):
            if row.name in _SIDE:
                row = replace(row, stream=1)
            self._add(row, inputs, out[index] if len(rows) > 1 else out, role, reads)
        self._written_to(mutated(func, args, kwargs))

    def _add_comm(self, func: Any, args: Any, kwargs: Any, out: Any, inputs: frozenset[int]) -> None:
        row = comm_row(func, args, kwargs, out, self.axes)
        if row.ranks <= 1:
            self._remember(out, inputs)
            return
        event = self._add(row, inputs, comm_outputs(func, args, out))
        sources = {self.events[index].row.name for index in inputs if isinstance(self.events[index].row, CapturedOp)}
        event.purpose = (
            "parameters" if _FSDP_IN in sources else "gradients" if _FSDP_OUT in sources else self._next_purpose
        )
        self._next_purpose = ""

    def _add(
        self, row: CapturedRow, inputs: frozenset[int], written: Any, role: str = OTHER, reads: tuple[Access, ...] = ()
    ) -> RecordedEvent:
        node = adapter.backward_node() if self._phase == "B" else None
        number = None if node is None else adapter.sequence_of(node)
        recomputed = node is not None and torch.is_grad_enabled()
        event = RecordedEvent(
            row, self._phase, self._module(number), number, inputs, recomputed, role=role, reads=reads
        )
        index = len(self.events)
        self.events.append(event)
        for producer in inputs:
            source = self.events[producer]
            source.consumers.append(index)
            if isinstance(source.row, CapturedComm) and source.wait is None:
                source.wait = event
        self._remember(written, frozenset((index,)))
        return event

    def _module(self, number: int | None) -> str:
        if self._modules:
            return self._modules[-1]
        return "" if number is None else self._module_of_node.get(number, "")

    def _note_node(self) -> None:
        """The node that the forward pass made last belongs to the module that runs."""
        if self._modules and torch.is_grad_enabled():
            self._module_of_node[adapter.next_sequence() - 1] = self._modules[-1]

    def _accesses(self, read: Iterable[tuple[torch.Tensor, float]]) -> tuple[Access, ...]:
        return tuple(Access(self.producers_of(one), *extent(one), n_bytes) for one, n_bytes in read if n_bytes)

    def _made_by(self, read: Any) -> frozenset[int]:
        found: set[int] = set()
        for tensor in tensors(read):
            found |= self._producers.get(tensor, NO_PRODUCERS)
        return frozenset(found)

    def _written_to(self, changed: list[torch.Tensor]) -> None:
        """Tensors that the last event changed in place, and those that they are views of."""
        last = frozenset((len(self.events) - 1,))
        for tensor in changed:
            self._producers[tensor] = last
            if tensor._base is not None:
                self._producers[tensor._base] = self.producers_of(tensor._base) | last

    def _remember(self, written: Any, producers: frozenset[int]) -> None:
        for tensor in tensors(written):
            self._producers[tensor] = producers
