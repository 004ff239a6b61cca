"""Peak number of activations and logits every stage holds, counted op by op along a schedule's order.

Unit: chunk-activations, the activations of one micro-batch in one model chunk (a stage holds `virtual_stages` chunks, so
`virtual_stages` chunk-activations are one micro-batch of the whole stage). An activation counts from the start of its
forward; the peak is taken with the forward that is running counted in full.

B releases `1 - kept_for_w` of an activation and W the rest; parts that run as one op release together at its end. The paper
that proposes to split them counts, per layer, M_B = s b (34 h + 5 a s) bytes until B and M_W = 32 s b h until W
(arXiv 2401.10241, table 1), i.e. 32/34 with FlashAttention or selective recompute; 1 is the safe side.
"""

from __future__ import annotations

from .order import Op, ScheduleOrder


def peak_activations(order: ScheduleOrder, kept_for_w: float = 1.0) -> list[float]:
    """Peak per stage, in chunk-activations.

    Args:
        order: of the ops of every stage.
        kept_for_w: fraction of an activation that stays between B and W, 0-1.
    """
    released = {"B": 1.0 - kept_for_w, "W": kept_for_w}
    return [_peak(ops, released, range(order.n_chunk)) for ops in order.orders]


def peak_logits(order: ScheduleOrder) -> list[int]:
    """Peak per stage of micro-batches whose loss is computed and whose input gradient of the last chunk is not."""
    head = range(order.n_chunk - 1, order.n_chunk)
    return [round(_peak(ops, {"B": 1.0}, head)) for ops in order.orders]


def _peak(ops: tuple[Op, ...], released: dict[str, float], chunks: range) -> float:
    held = peak = 0.0
    for op in ops:
        parts = [part for part in op.parts if part.chunk in chunks]
        held += sum(part.kind == "F" for part in parts)
        peak = max(peak, held)
        held -= sum(released.get(part.kind, 0.0) for part in parts)
    return peak
