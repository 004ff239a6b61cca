"""Makes rows of single operations: products by their sizes, all else by the bytes that it moves.

Gatherings of the same groups, in the same loop, that wait for nothing between them are one, as XLA for GPUs makes them; XLA for
CPUs leaves each parameter's apart. Up to `MOST_BYTES` a combined one: `xla_gpu_all_gather_combine_threshold_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...workload.captured.chains import FEEDS
from ...workload.captured.program import CapturedComm, CapturedOp, CapturedRow
from .flattened import Operation
from .moves import own_shape
from .products import is_again, layer_of, named, product_of
from .rows import LEAST_BYTES
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
    again = " again" if is_again(module, at) else ""
    makers = [computation.instructions[name] for name in at.operands]
    product = product_of(module, at, tuple(maker.shapes[0] for maker in makers if maker.shapes))
    if product is None:
        target = at.attributes.get("custom_call_target", "").strip('"')
        name = f"custom-call {target[:60]}" if target else at.opcode
        kind = "memory" if one.n_bytes > LEAST_BYTES else "none"
        dtype = at.shapes[0].plain_dtype if at.shapes else "fp32"
        return CapturedOp(
            name + again, kind, one.phase, dtype, (), 0.0, one.n_bytes, layer,
            fusible=one.role in FEEDS, output_bytes=one.written,
        )  # fmt: skip
    return CapturedOp(
        name=("dot" if product.kind == "gemm" else "convolution") + again,
        kind=product.kind,
        phase=one.phase,
        dtype=own_shape(module, computation, at.operands[0], one.outer).plain_dtype,
        shape=product.shape,
        flops=product.flops,
        n_bytes=one.n_bytes,
        module=layer,
        output_bytes=one.written,
    )
