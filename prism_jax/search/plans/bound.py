"""A lower bound of the noise-free step time, from costs alone.

Stage s starts when the first micro-batch has come through the stages before it, is busy for all its work, and the step ends after
the last gradient has gone back to the first stage and every stage has done what it does at the end:

    T >= max_s  (fill_s + busy_s + max(end_s, drain_s + end_0))

Stages that put work off behind their last gradient (zero-bubble) let nothing drain, bidirectional schedules and the V do not
fill in one direction; a schedule says which terms hold for it, and those that do not are left out. Where a forward runs beside
a backward, communication counts nothing.
1F1B and GPipe without transfers meet the bound.
"""

from __future__ import annotations

import numpy as np

from ..._typing import Floats
from .block import TableCost, chunk_seconds
from .plan_cache import Rows

SAFETY = 1.0 - 1e-6  # step times are computed in float32


def lower_bound(cost: TableCost, eff_slowdown: float) -> Floats:
    """[plan] seconds that no schedule of the layout can beat."""
    bound = np.empty(len(cost.table))
    for first in range(0, len(bound), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(bound)))
        bound[rows] = _bound(cost, rows, eff_slowdown)
    return bound * SAFETY


_ROWS = 1 << 14


def _bound(cost: TableCost, rows: Rows, eff_slowdown: float) -> Floats:
    layout = cost.table.layout
    pp, schedule = layout.pp, layout.pipeline_schedule
    compute, comm, _ = chunk_seconds(cost, rows, eff_slowdown)
    seconds = (compute if schedule.overlaps_passes else compute + comm)[..., 0]  # [plan, kind, chunk]
    shares = schedule.stage_shares(pp, layout.virtual_stages)
    busy = cost.table.n_micro_batch[rows, None] * (seconds.sum(axis=1) @ shares)
    end = (cost.end.compute_s + cost.end.exposed_s)[rows]
    fill = _before(seconds[:, 0, :pp]) if schedule.fills_one_way else 0.0
    drain = _before(seconds[:, 1, :pp] + seconds[:, 2, :pp])
    last = np.maximum(end, drain + end[:, :1]) if schedule.drains_one_way else end
    return (fill + busy + last).max(axis=1)


def _before(seconds: Floats) -> Floats:
    """Sum over the stages before each [plan, stage]."""
    return np.cumsum(seconds, axis=1) - seconds
