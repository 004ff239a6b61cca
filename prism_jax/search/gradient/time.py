"""Noise-free step time of plans from their costs alone; no pipeline is run.

Every schedule says what its stages wait for beyond the lower bound, in closed form (`PipelineSchedule.step_s`); what transfers
between stages add is the same for all and is added here.
"""

from __future__ import annotations

import numpy as np

from ..._typing import Floats
from ...schedule import PipelineWork
from ..plans.block import TableCost, chunk_seconds
from ..plans.bound import lower_bound
from ..plans.cost_cache import PlanCosts

_ROWS = 1 << 14


def estimate_s(cost: TableCost, costs: PlanCosts) -> Floats:
    """[plan] noise-free step time of the plans of a block, seconds: a few per cent off, most where micro-batches are few."""
    slowdown = costs.eff.overlap_slowdown
    found, layout = lower_bound(cost, slowdown), cost.table.layout
    schedule, m = layout.pipeline_schedule, cost.table.n_micro_batch
    end = cost.end.compute_s + cost.end.exposed_s
    for first in range(0, len(found), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(found)))
        seconds = chunk_seconds(cost, rows, slowdown)
        compute, comm, hidden = (part[..., 0] for part in seconds)  # [plan, kind, chunk]
        degrees = (layout.pp, layout.virtual_stages, m[rows])
        work = PipelineWork(*degrees, found[rows], compute, comm, hidden, end[rows])
        found[rows] = schedule.step_s(work) + _sent_s(cost, rows, work.whole_s)
    return found


def _sent_s(cost: TableCost, rows: np.ndarray, whole: Floats) -> Floats:
    """[plan] what transfers between stages add to the busiest stage, and the way there and back of one micro-batch."""
    table, layout = cost.table, cost.table.layout
    edge = cost.edge_s[cost.of_edge[rows]]
    beyond = edge.copy()  # a forward is sent over the edge after its chunk, a gradient over the edge before
    beyond[:, 1:] += edge[:, :-1]
    busy, held = whole.sum(axis=1), layout.pipeline_schedule.stage_shares(layout.pp, layout.virtual_stages)
    more = ((busy + beyond) @ held).max(axis=1) - (busy @ held).max(axis=1)
    return more * table.n_micro_batch[rows] * (1 - table.overlap_pp[rows]) + 2.0 * edge[:, : layout.pp].sum(axis=1)
