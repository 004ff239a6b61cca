# pyright: reportMissingImports=false
"""Collectives of PyTorch, as the dispatcher sees them: `c10d` (in place) and `_c10d_functional` (DTensor), as rows.

Bytes are those that `system.network.base` defines: the buffer of an all-reduce, the gathered size of an all-gather, the size
before reduction of a reduce-scatter, what one rank sends of an all-to-all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....workload.captured.rows import CapturedComm
from ..adapter import group_ranks
from ..mesh_axes import group_of
from .op_sizes import dtype_of, stored_bytes, tensors

NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
WAIT = "wait_tensor"
# Operation -> collective, and whether its size is that of what it writes (True) or of what it reads.
_KINDS = {
    "allreduce_": ("all_reduce", False),
    "allreduce_coalesced_": ("all_reduce", False),
    "all_reduce": ("all_reduce", False),
    "all_reduce_": ("all_reduce", False),
    "all_reduce_coalesced": ("all_reduce", False),
    "_allgather_base_": ("all_gather", True),
    "allgather_": ("all_gather", True),
    "allgather_into_tensor_coalesced_": ("all_gather", True),
    "all_gather_into_tensor": ("all_gather", True),
    "all_gather_into_tensor_out": ("all_gather", True),
    "all_gather_into_tensor_coalesced": ("all_gather", True),
    "_reduce_scatter_base_": ("reduce_scatter", False),
    "reduce_scatter_": ("reduce_scatter", False),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", False),
    "reduce_scatter_tensor": ("reduce_scatter", False),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", False),
    "reduce_": ("all_reduce", False),
    "alltoall_base_": ("all_to_all", False),
    "alltoall_": ("all_to_all", False),
    "all_to_all_single": ("all_to_all", False),
    "shard_dim_alltoall": ("all_to_all", False),
    "broadcast_": ("broadcast", False),
    "broadcast": ("broadcast", False),
    "scatter_": ("broadcast", False),
    "gather_": ("all_gather", True),
    "send": ("send", False),
    "recv_": ("recv", False),
}
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
    """What is read, and what is written."""
    if func.namespace != "c10d":
        return list(tensors(args)), list(tensors(out))
    first = list(tensors(args[0]))
    if name.startswith(_WRITTEN_FIRST) or name.endswith("_base_"):
        return list(tensors(args[1])), first
    return first, first
