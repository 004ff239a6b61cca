"""StepGraph of a schedule: the order of `schedules`, laid out in levels, with the seconds of `StepCost`.

An op lasts the sum of its parts. Where a forward runs beside a backward (DualPipe), communication of either part runs beside
the compute of the other, as far as that compute is not already beside communication of its own part:

    exposed(F) = max(0, comm(F) - max(0, compute(BW) - hidden(BW))), and the same with F and BW exchanged;
    op = compute(F) + compute(BW) + exposed(F) + exposed(BW).

The exposed seconds keep the shares of their axes. Compute is not slowed further by what it hides; a cost model that knows by
how much puts that into `compute_s`.

Handing activations over edge q (chunk q to q + 1) or gradients back takes `p2p_s[q]`, nothing within a stage. Without blocking
it is a lag between the ops; with `p2p_blocking` it is time of the sender, the sum over what an op sends.
"""

from __future__ import annotations

import numpy as np

from .._typing import Ints
from ..cost.step_cost import StepCost
from ..errors import PlanError
from ..schedule.order import Op, ScheduleOrder
from .levels import LevelTable, level_table as level_table
from .seconds import graph_seconds
from .signatures import signatures
from .step_graph import StepGraph


def build_graph(schedule: ScheduleOrder, cost: StepCost) -> StepGraph[Op]:
    """Everything one member group per stage does in a step, noise-free, ready for the jitted code.

    Args:
        schedule: order of the ops of every stage.
        cost: seconds per op kind and model chunk; its chunk axis has `schedule.n_chunk` entries.

    Raises:
        PlanError: the schedule deadlocks, or `cost` is for another number of chunks or stages.
    """
    _check_shapes(schedule, cost)
    table = level_table(schedule)
    sigs = signatures(schedule, table)
    return StepGraph(
        dep_level=table.dep_level,
        dep_lane=table.dep_lane,
        op=_numbered(schedule, table),
        ops=tuple([op for order in schedule.orders for op in order]),
        **graph_seconds(cost, sigs, table)._asdict(),
    )


def _check_shapes(schedule: ScheduleOrder, cost: StepCost) -> None:
    n_chunk, n_stage = cost.compute_s.shape[1], len(cost.end_compute_s)
    if (n_chunk, n_stage) != (schedule.n_chunk, schedule.pp):
        raise PlanError(
            f"the cost has {n_chunk} model chunks on {n_stage} stages, but schedule {schedule.name} runs "
            f"{schedule.n_chunk} on {schedule.pp}. Compute both from the same plan."
        )


def _numbered(schedule: ScheduleOrder, table: LevelTable) -> Ints:
    """[level, lane] number of the op there, lane by lane in running order; -1 where the lane idles."""
    first = np.cumsum([0] + [len(order) for order in schedule.orders[:-1]])
    return np.where(table.op >= 0, table.op + first[None, :], -1).astype(np.int32)
