"""Makes rows of single operations: products by their sizes, all else by the bytes that it moves.

Gatherings of the same groups, in the same loop, that wait for nothing between them are one, as XLA for GPUs makes them; XLA for
CPUs leaves each parameter's apart. Up to `MOST_BYTES` a combined one: `xla_gpu_all_gather_combine_threshold_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...workload.captured.chains import FEEDS
from ...workload.captured.program import CapturedComm, CapturedOp, CapturedRow
from .flattened import Operation
from .products import is_again, layer_of, named, product_of
from .rows import FoundProduct, memory_op, product_op
from .types import Module

MOST_BYTES = 30.0 * 2**20  # xla/debug_options_flags.cc
Key = tuple[object, ...]


def joins(rows: Sequence[CapturedRow], last: Mapping[Key, int], key: Key, row: CapturedComm) -> int | None:
    """Index of the row that a gathering becomes part of; None: it is one of its own.

    Args:
        last: key of loop, phase and groups -> index of the latest gathering.
    """
    index = last.get(key)
    if index is None:
        return None
    before = rows[index]
    fits = isinstance(before, CapturedComm) and before.n_bytes + row.n_bytes <= MOST_BYTES and before.dtype == row.dtype
    return index if fits else None


def row_of(module: Module, one: Operation, layer: str) -> CapturedOp | None:
    """The row of an operation; None: it only stands for a reader.

    Args:
        layer: where its name does not tell.
    """
    if one.place is None:
        return None
    computation, at = one.place
    layer = layer_of(named(module, at)) or layer
    again = is_again(module, at)
    product = product_of(module, computation, at)
    if product is None:
        is_fusible = one.role in FEEDS
        return memory_op(at, one.phase, one.n_bytes, one.written, layer, again=again, fusible=is_fusible)
    found = FoundProduct(product, computation, at, one.outer)
    return product_op(module, found, one.phase, one.n_bytes, one.written, layer, again=again)
