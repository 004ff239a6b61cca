"""Interleaved 1F1B: every stage holds several model chunks, so the pipeline fills in smaller steps.

Chunk q lives on stage q % pp. Micro-batches pass in groups; a group visits all chunks of a stage before the next group starts.

Source: Narayanan et al., arXiv 2104.04473, section 2.2; warm-up and group rule as in Megatron-Core,
`megatron/core/pipeline_parallel/schedules.py` (`get_schedule_table`, `microbatch_group_size_per_vp_stage`).
"""

from __future__ import annotations

from ..errors import PlanError
from .base import Op, Schedule, backward, forward, straight
from .in_flight import interleaved_group, interleaved_warm_up


def interleaved(pp: int, n_micro_batch: int, virtual_stages: int) -> Schedule:
    """Order of Megatron-LM, with groups of `interleaved_group(pp, n_micro_batch)` micro-batches.

    Raises:
        PlanError: fewer than two chunks per stage, or fewer micro-batches than stages.
    """
    if virtual_stages < 2:
        raise PlanError(
            f"schedule interleaved needs virtual_stages >= 2, but it is {virtual_stages}. "
            "Try schedule='1f1b', or virtual_stages=2."
        )
    passes = _passes(interleaved_group(pp, n_micro_batch), n_micro_batch, virtual_stages)
    orders = tuple(
        _order(stage, interleaved_warm_up(pp, n_micro_batch, virtual_stages, stage), passes, pp, virtual_stages)
        for stage in range(pp)
    )
    return Schedule("interleaved", pp, n_micro_batch, virtual_stages, orders, straight(pp))


def _passes(group: int, n_micro_batch: int, virtual_stages: int) -> list[tuple[int, int]]:
    """(micro-batch, chunk of the stage) in forward order, the same on every stage."""
    return [
        (m, v)
        for first in range(0, n_micro_batch, group)
        for v in range(virtual_stages)
        for m in range(first, min(first + group, n_micro_batch))
    ]


def _order(stage: int, n_warm_up: int, passes: list[tuple[int, int]], pp: int, virtual_stages: int) -> tuple[Op, ...]:
    forwards = [forward(m, v * pp + stage) for m, v in passes]
    backwards = [backward(m, (virtual_stages - 1 - v) * pp + stage) for m, v in passes]
    order = forwards[:n_warm_up]
    n_paired = len(passes) - n_warm_up
    for pair in zip(forwards[n_warm_up:], backwards[:n_paired], strict=True):
        order.extend(pair)
    order.extend(backwards[n_paired:])
    return tuple(order)
