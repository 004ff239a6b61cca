"""A lower bound of the noise-free step time, from costs alone.

Stage s starts when the first micro-batch has come through the stages before it, is busy for all its work, and the step ends after
the last gradient has gone back to the first stage and every stage has done what it does at the end:

    T >= max_s  (fill_s + busy_s + max(end_s, drain_s + end_0))

Stages that put work off behind their last gradient (zero-bubble) let nothing drain, bidirectional schedules and the V do not
fill in one direction; there these terms are left out. Where a forward runs beside a backward, communication counts nothing.
1F1B and GPipe without transfers meet the bound.
"""

from __future__ import annotations

import numpy as np

from ..._typing import Floats
from ...partition.chunks import chunks_of_stage
from ...plan.plan import ParallelPlan
from .block import TableCost, chunk_seconds
from .plan_cache import Rows

_PLAIN = ("gpipe", "1f1b", "interleaved")
_ONE_WAY = (*_PLAIN, "zb_h1", "zb_h2")
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
    plan = cost.table.plan(0)
    pp, bidirectional = plan.pp, plan.schedule == "dualpipe"
    compute, comm, _ = chunk_seconds(cost, rows, eff_slowdown)
    seconds = (compute if bidirectional else compute + comm)[..., 0]  # [plan, kind, chunk]
    busy = cost.table.n_micro_batch[rows, None] * (seconds.sum(axis=1) @ stage_shares(plan))
    end = (cost.end.compute_s + cost.end.exposed_s)[rows]
    fill = _before(seconds[:, 0, :pp]) if plan.schedule in _ONE_WAY else 0.0
    drain = _before(seconds[:, 1, :pp] + seconds[:, 2, :pp])
    last = np.maximum(end, drain + end[:, :1]) if plan.schedule in _PLAIN else end
    return (fill + busy + last).max(axis=1)


def stage_shares(plan: ParallelPlan) -> Floats:
    """[chunk, stage] share of a chunk's micro-batches that a stage runs: 1, or half where two stages share it."""
    held = np.zeros((plan.n_chunk, plan.pp))
    for stage in range(plan.pp):
        held[[*chunks_of_stage(plan, stage)], stage] = 1.0
    return held / held.sum(axis=1, keepdims=True)


def _before(seconds: Floats) -> Floats:
    """Sum over the stages before each [plan, stage]."""
    return np.cumsum(seconds, axis=1) - seconds
