# pyright: reportMissingImports=false
"""What an ATen operation reads of every tensor, and what a kernel may do with it: what `chains` needs to know of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ....workload.captured.chains import COPY, KERNEL, LOOKUP, ONCE, OTHER, POINTWISE, REDUCTION, SCATTER, SUM
from ....workload.captured.rows import OWN_KERNELS, CapturedOp
from .op_sizes import (
    FILLS,
    LOOKUPS,
    REDUCTIONS,
    UNREAD,
    added,
    is_added_in_place,
    read_tensors,
    stored_bytes,
    tensors,
    unique,
)

_COPIES = ("cat", "clone", "copy_", "stack", "contiguous", "_to_copy")  # where the format stays
_SCATTERS = ("index_add_", "index_add", "index_put_", "index_put", "_index_put_impl_", "scatter_add_", "scatter_add")
# Operations without the tag of pointwise ones that make each element from those at its place.
_ELEMENTWISE = (
    "gelu_backward",
    "silu_backward",
    "threshold_backward",
    "nll_loss_backward",
    "_to_copy",
    "__or__",
    "__and__",
)
_RANDOM = ("native_dropout", "native_dropout_backward")


def role_of(func: Any, args: Sequence[Any], row: CapturedOp) -> str:
    """What a kernel may do with an operation, as one of the words of `chains`."""
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
    written = args[0] if name == "copy_" else None
    if not isinstance(source, Tensor):
        return False
    if written is not None:
        return source.dtype == written.dtype
    return name != "_to_copy" or row.n_bytes == 2.0 * row.output_bytes


def read_bytes(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Iterator[tuple[Tensor, float]]:
    """Tensors that an operation reads, and how many bytes of each; sums to what `op_rows` counts."""
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
