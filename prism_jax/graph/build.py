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

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats, Ints
from ..cost.step_cost import KINDS, StepCost
from ..errors import PlanError
from .levels import LevelTable, describe, level_table as level_table
from .schedules.base import Schedule
from .step_graph import StepGraph


class _Parts(NamedTuple):
    """All parts of all ops, one entry each."""

    at: tuple[NDArray[np.intp], NDArray[np.intp]]  # level and lane of the op
    kind: NDArray[np.intp]  # index into KINDS
    chunk: NDArray[np.intp]
    send_edge: NDArray[np.intp]  # edge its result crosses to another stage, -1 for none


def build_graph(schedule: Schedule, cost: StepCost) -> StepGraph:
    """Everything one member group per stage does in a step, noise-free, ready for the jitted code.

    Args:
        schedule: order of the ops of every stage.
        cost: seconds per op kind and model chunk; its chunk axis has `schedule.n_chunk` entries.

    Raises:
        PlanError: the schedule deadlocks, or `cost` is for another number of chunks or stages.
    """
    _check_shapes(schedule, cost)
    table = level_table(schedule)
    parts = _parts(schedule, table)
    compute_s, comm_s = _durations(table.op.shape, parts, cost)
    label, labels = _labels(schedule, table)
    p2p_s = np.append(cost.p2p_s, 0.0)  # edge -1: nothing is sent
    send_s = np.zeros(table.op.shape)
    if cost.p2p_blocking:
        np.add.at(send_s, parts.at, p2p_s[parts.send_edge])
    return StepGraph(
        compute_s=compute_s,
        comm_s=comm_s,
        dep_level=table.dep_level,
        dep_lane=table.dep_lane,
        lag_s=np.zeros(table.dep_edge.shape) if cost.p2p_blocking else p2p_s[table.dep_edge],
        label=label,
        labels=labels,
        end_compute_s=np.array(cost.end_compute_s, dtype=np.float64),
        end_comm_s=np.array(cost.end_comm_s, dtype=np.float64),
        send_s=send_s,
    )


def _check_shapes(schedule: Schedule, cost: StepCost) -> None:
    n_chunk, n_stage = cost.compute_s.shape[1], len(cost.end_compute_s)
    if (n_chunk, n_stage) != (schedule.n_chunk, schedule.pp):
        raise PlanError(
            f"the cost has {n_chunk} model chunks on {n_stage} stages, but schedule {schedule.name} runs "
            f"{schedule.n_chunk} on {schedule.pp}. Compute both from the same plan."
        )


def _parts(schedule: Schedule, table: LevelTable) -> _Parts:
    level, lane = np.nonzero(table.op >= 0)
    ops = [schedule.orders[s][i] for s, i in zip(lane.tolist(), table.op[level, lane].tolist(), strict=True)]
    n_part = [len(op.parts) for op in ops]
    flat = [part for op in ops for part in op.parts]
    kind = np.array([KINDS.index(part.kind) for part in flat], dtype=np.intp)
    chunk = np.array([part.chunk for part in flat], dtype=np.intp)
    micro_batch = np.array([part.micro_batch for part in flat], dtype=np.intp)
    return _Parts(
        (np.repeat(level, n_part), np.repeat(lane, n_part)), kind, chunk, _send_edge(schedule, kind, chunk, micro_batch)
    )


def _send_edge(
    schedule: Schedule, kind: NDArray[np.intp], chunk: NDArray[np.intp], micro_batch: NDArray[np.intp]
) -> NDArray[np.intp]:
    """F of chunk q sends over edge q, B over edge q - 1, W nowhere; nothing is sent within a stage or past the ends."""
    n_chunk = schedule.n_chunk
    stage = np.array([[schedule.stage_of(q, m) for m in range(schedule.n_micro_batch)] for q in range(n_chunk)])
    crosses = np.zeros((n_chunk + 1, schedule.n_micro_batch), dtype=bool)  # last row: edges -1 and n_chunk - 1
    crosses[: n_chunk - 1] = stage[:-1] != stage[1:]
    edge = np.where(kind == KINDS.index("F"), chunk, chunk - 1)
    return np.where((kind != KINDS.index("W")) & crosses[edge, micro_batch], edge, -1)


def _durations(shape: tuple[int, ...], parts: _Parts, cost: StepCost) -> tuple[Floats, Floats]:
    """Compute seconds [level, lane, class] and exposed communication seconds [level, lane, axis] of every op."""

    def total(values: Floats, chosen: NDArray[np.bool_]) -> Floats:
        out = np.zeros((*shape, values.shape[-1]))
        np.add.at(out, (parts.at[0][chosen], parts.at[1][chosen]), values[parts.kind[chosen], parts.chunk[chosen]])
        return out

    is_forward = parts.kind == KINDS.index("F")
    sides = (is_forward, ~is_forward)
    compute = [total(cost.compute_s, side) for side in sides]
    comm = [total(cost.comm_s, side) for side in sides]
    free = [
        np.maximum(c.sum(-1) - total(cost.hidden_comm_s, side).sum(-1), 0.0)
        for c, side in zip(compute, sides, strict=True)
    ]
    exposed = [
        own * _exposed_share(own.sum(-1), beside)[..., None] for own, beside in zip(comm, free[::-1], strict=True)
    ]
    both = _runs_both(shape, parts, sides)[..., None]
    return compute[0] + compute[1], np.where(both, exposed[0] + exposed[1], comm[0] + comm[1])


def _runs_both(shape: tuple[int, ...], parts: _Parts, sides: tuple[NDArray[np.bool_], ...]) -> NDArray[np.bool_]:
    """Whether an op holds a forward and a backward part."""
    both = np.ones(shape, dtype=bool)
    for side in sides:
        has = np.zeros(shape, dtype=bool)
        has[parts.at[0][side], parts.at[1][side]] = True
        both &= has
    return both


def _exposed_share(comm_s: Floats, beside_s: Floats) -> Floats:
    """Share of `comm_s` that does not fit beside `beside_s` of compute; 0 where there is no communication."""
    return np.divide(np.maximum(comm_s - beside_s, 0.0), comm_s, out=np.zeros_like(comm_s), where=comm_s > 0)


def _labels(schedule: Schedule, table: LevelTable) -> tuple[Ints, tuple[str, ...]]:
    """Every op runs once, so labels are numbered lane by lane in running order."""
    first = np.cumsum([0] + [len(order) for order in schedule.orders[:-1]])
    label = np.where(table.op >= 0, table.op + first[None, :], -1).astype(np.int32)
    return label, tuple([describe(op) for order in schedule.orders for op in order])
