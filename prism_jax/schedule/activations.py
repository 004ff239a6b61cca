"""Peak number of activations every stage holds, counted op by op along a schedule.

Unit and release rules as in `in_flight`, whose closed forms this count checks: chunk-activations; one is held from
the start of F; B releases `1 - kept_for_w` of it, W the rest. Parts that run as one op release together at its end.
"""

from __future__ import annotations

from .base import Op, Schedule


def peak_activations(schedule: Schedule, kept_for_w: float = 1.0) -> list[float]:
    """Peak per stage, in chunk-activations.

    Args:
        schedule: order of the ops of every stage.
        kept_for_w: fraction of an activation that stays between B and W, 0-1.
    """
    return [_peak(order, {"B": 1.0 - kept_for_w, "W": kept_for_w}) for order in schedule.orders]


def _peak(order: tuple[Op, ...], released: dict[str, float]) -> float:
    held = peak = 0.0
    for op in order:
        held += sum(part.kind == "F" for part in op.parts)
        peak = max(peak, held)
        held -= sum(released.get(part.kind, 0.0) for part in op.parts)
    return peak
