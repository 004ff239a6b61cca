"""StepGraph of a schedule: its order laid out in `levels`, with the seconds of `StepCost` (NumPy, or traced by JAX).

Ops of a lane that run the same kinds of work on the same chunks (and send over the same edges) have one *signature*, whatever
their micro-batch. Its seconds are computed once, for any number of plans (leading axes of the cost), and picked by index. An
op lasts the sum of its parts. Where a forward overlaps a backward (DualPipe), communication of either part runs during the
compute of the other, as far as that compute does not already overlap communication of its own part:

    exposed(F) = max(0, comm(F) - max(0, compute(BW) - hidden(BW))), and the same with F and BW exchanged;
    op = compute(F) + compute(BW) + exposed(F) + exposed(BW).

The exposed seconds keep the shares of their axes. Compute is not slowed further by what it hides; a cost model that knows by
how much puts that into `compute_s`. Handing activations over edge q (chunk q to q + 1) or gradients back takes `p2p_s[q]`,
nothing within a stage. Without blocking it is a lag between the ops; with `p2p_blocking` it is time of the sender, the sum
over its sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Ints, Values, is_numpy, namespace
from ..core.errors import PlanError
from ..core.kernels import PASSES
from ..cost.step import StepCost
from ..schedule.order import Placement, ScheduleOrder
from .levels import LevelTable, level_table
from .step_graph import StepGraph

Index = NDArray[np.intp]


class Signatures(NamedTuple):
    """Different ops of a schedule; up to three parts each.

    Attributes:
        of_op: [level, lane] signature of the op there, -1 where the lane idles; of `op_signatures` [op].
        lane: [signature] lane that runs it.
        kind: [signature, part] index into `PASSES`, -1 for no part.
        chunk: [signature, part].
        edge: [signature, part] edge its result crosses to another stage, -1 for none.
    """

    of_op: Index
    lane: Index
    kind: Index
    chunk: Index
    edge: Index


def signatures(schedule: ScheduleOrder, table: LevelTable) -> Signatures:
    """Signatures of all ops of `schedule` at their places in `table`."""
    own = op_signatures(schedule)
    number = numbered(schedule, table)
    return own._replace(of_op=np.where(number >= 0, own.of_op[number], -1))


def op_signatures(schedule: ScheduleOrder) -> Signatures:
    """Signatures with `of_op` [op], lane by lane in running order; signatures count in the order in which they appear."""
    ops, placement, n_chunk = schedule.ops, schedule.stage_of, schedule.n_chunk
    direction = np.array(placement.direction)[ops.micro_batch]
    part = np.where(ops.kind >= 0, (ops.kind * len(placement.stages) + direction) * n_chunk + ops.chunk + 1, 0)
    code = ops.stage
    for own in part.T:
        code = code * (len(PASSES) * len(placement.stages) * n_chunk + 1) + own
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    place = np.argsort(first)
    rank, first = np.argsort(place), first[place]
    kind, chunk = ops.kind[first], ops.chunk[first]
    edge = np.where(kind >= 0, _edges(placement)[kind, direction[first], chunk], -1)
    return Signatures(rank[which], ops.stage[first], kind, chunk, edge)


_KIND = {name: index for index, name in enumerate(PASSES)}


def _edges(placement: Placement) -> Index:
    """Edge that is crossed, [kind, direction, chunk]: F of chunk q sends over edge q, B over edge q - 1, W nowhere.

    Nothing is sent within a stage or past the ends.
    """
    stages = np.array(placement.stages)
    edge = np.full((len(PASSES), *stages.shape), -1)
    sent = np.where(stages[:, :-1] != stages[:, 1:], np.arange(stages.shape[1] - 1), -1)
    edge[_KIND["F"], :, :-1] = edge[_KIND["B"], :, 1:] = sent
    return edge


def signature_seconds(sigs: Signatures, compute_s: Values, comm_s: Values, hidden_s: Values) -> tuple[Values, Values]:
    """Compute [*plan, signature, class] and exposed communication [*plan, signature, axis] seconds.

    Args:
        sigs: of the schedule.
        compute_s, comm_s, hidden_s: as in `StepCost`, [*plan, kind, chunk, class or axis]; may be traced by JAX.

    Notes:
        Where an op holds a forward and a backward part, the communication of each runs during the other's compute that is free.
    """
    used = sigs.kind >= 0
    is_forward = used & (sigs.kind == _KIND["F"])
    sides = (is_forward, used & ~is_forward)
    compute = [_total(compute_s, sigs, side) for side in sides]
    comm = [_total(comm_s, sigs, side) for side in sides]
    both = sides[0].any(axis=1) & sides[1].any(axis=1)
    if not both.any():
        return compute[0] + compute[1], comm[0] + comm[1]
    xp = namespace(compute_s, comm_s)
    free = [
        xp.maximum(own.sum(axis=-1) - _total(hidden_s, sigs, side).sum(axis=-1), 0.0)
        for own, side in zip(compute, sides, strict=True)
    ]
    exposed = [
        own * _exposed_share(own.sum(axis=-1), beside)[..., None] for own, beside in zip(comm, free[::-1], strict=True)
    ]
    return compute[0] + compute[1], xp.where(both[:, None], exposed[0] + exposed[1], comm[0] + comm[1])


def _total(values: Values, sigs: Signatures, chosen: NDArray[np.bool_]) -> Values:
    """Sum of the chosen parts [*plan, signature, class] of values [*plan, kind, chunk, class]."""
    xp = namespace(values)
    total = xp.zeros((*values.shape[:-3], len(sigs.kind), values.shape[-1]))
    for part in range(sigs.kind.shape[1]):
        rows = np.flatnonzero(chosen[:, part])
        own = values[..., sigs.kind[rows, part], sigs.chunk[rows, part], :]
        if is_numpy(xp):
            total[..., rows, :] += own
        else:
            total = total.at[..., rows, :].add(own)
    return total


def _exposed_share(comm_s: Values, beside_s: Values) -> Values:
    """Share of `comm_s` that does not fit into `beside_s` of compute; 0 where there is no communication."""
    xp = namespace(comm_s, beside_s)
    return xp.maximum(comm_s - beside_s, 0.0) / xp.where(comm_s > 0.0, comm_s, 1.0)


class GraphSeconds(NamedTuple):
    """Noise-free seconds of a `StepGraph`, in the array library of the cost.

    Attributes:
        compute_s: [level, lane, compute_class].
        comm_s: [level, lane, comm_axis].
        lag_s: [level, lane, dep].
        send_s: [level, lane].
        end_compute_s, end_comm_s: [lane].
    """

    compute_s: Values
    comm_s: Values
    lag_s: Values
    send_s: Values
    end_compute_s: Values
    end_comm_s: Values


def graph_seconds(cost: StepCost, sigs: Signatures, table: LevelTable) -> GraphSeconds:
    """Seconds of every op, transfer and end of the step.

    Args:
        cost: of the plan; its arrays may be traced.
        sigs: of the schedule's ops, at their places in `table`.
        table: levels of the schedule.
    """
    xp = namespace(cost)
    compute_s, comm_s = signature_seconds(sigs, cost.compute_s, cost.comm_s, cost.hidden_comm_s)
    p2p_s = xp.append(cost.p2p_s, 0.0)  # edge -1: nothing is sent
    send_s = p2p_s[sigs.edge].sum(axis=-1) if cost.p2p_blocking else xp.zeros(len(sigs.edge))
    return GraphSeconds(
        compute_s=_placed(compute_s, sigs.of_op, xp),
        comm_s=_placed(comm_s, sigs.of_op, xp),
        lag_s=xp.zeros(table.dep_edge.shape) if cost.p2p_blocking else p2p_s[table.dep_edge],
        send_s=_placed(send_s, sigs.of_op, xp),
        end_compute_s=xp.asarray(cost.end_compute_s, dtype=float),
        end_comm_s=xp.asarray(cost.end_comm_s, dtype=float),
    )


class Portion(NamedTuple):
    """Compute of which all goes with one kind of work: with the tokens of a micro-batch, say, or the load of the busiest rank.

    Attributes:
        seconds: [kind, chunk] of the passes; may be traced.
        by_chunk: whether every model chunk has a factor of its own.
    """

    seconds: Values
    by_chunk: bool = False


class WorkTerms(NamedTuple):
    """Factors of the work that an op goes with, and their shares of it; a term is one portion of one micro-batch.

    Attributes:
        row: [level, lane, term] or [op, term] row of the factor: rows of a portion follow those of the portions before it, and
            count chunks (only one if they share factors), then micro-batches.
        share: the same shape; of the op's compute seconds, of an op that is slowed by nothing.
    """

    row: Ints
    share: Values


def work_terms(schedule: ScheduleOrder, table: LevelTable, cost: StepCost, portions: Sequence[Portion]) -> WorkTerms:
    """Splits the compute of every op into the parts that go with each kind of work, micro-batch by micro-batch.

    Args:
        schedule, table: which op stands where.
        cost: of the plan; its arrays may be traced.
        portions: of the compute seconds of `cost`; what is in none of them is the same for every micro-batch.
    """
    xp = namespace(cost, portions)
    number = numbered(schedule, table)
    row, share = op_work_terms(schedule, op_signatures(schedule), cost.compute_s, portions)
    placed = np.where(number[..., None] >= 0, row[number], 0)
    return WorkTerms(placed.astype(np.int32), _placed(share, number.astype(np.intp), xp))


def op_work_terms(
    schedule: ScheduleOrder, sigs: Signatures, compute_s: Values, portions: Sequence[Portion]
) -> WorkTerms:
    """Returns the terms [op, term] of ops in the order of `op_signatures`, of compute seconds [kind, chunk, class]."""
    xp, ops = namespace(compute_s, portions), schedule.ops
    used = sigs.kind >= 0
    total_s = xp.asarray(compute_s).sum(axis=-1)[sigs.kind, sigs.chunk]
    total_s = xp.where(used, total_s, 0.0).sum(axis=-1, keepdims=True)
    same = (ops.micro_batch[:, :, None] == ops.micro_batch[:, None]) & (ops.chunk[:, :, None] == ops.chunk[:, None])
    slot = np.where(ops.kind >= 0, same.argmax(axis=2), -1)  # parts of one micro-batch and chunk are one term
    terms = [k for k in range(slot.shape[1]) if (slot == k).any()]
    first, rows, shares = 0, [], []
    for seconds, by_chunk in portions:
        own = xp.where(used, xp.asarray(seconds)[sigs.kind, sigs.chunk], 0.0) / xp.where(total_s > 0.0, total_s, 1.0)
        own, chunk = own[sigs.of_op], ops.chunk if by_chunk else np.zeros_like(ops.chunk)
        row = np.where(ops.kind >= 0, first + chunk * schedule.n_micro_batch + ops.micro_batch, 0)
        rows += [row[:, k] for k in terms]
        shares += [xp.where(slot == k, own, 0.0).sum(axis=-1) for k in terms]
        first += (schedule.n_chunk if by_chunk else 1) * schedule.n_micro_batch
    return WorkTerms(np.stack(rows, axis=-1).astype(np.int32), xp.stack(shares, axis=-1))


def _placed(seconds: Values, of_op: NDArray[np.intp], xp: Any) -> Values:
    """Places values [signature, ...] at [level, lane, ...]; zero where a lane idles."""
    return xp.concatenate([seconds, 0.0 * seconds[:1]])[of_op.astype(np.int32)]


def build_graph(schedule: ScheduleOrder, cost: StepCost) -> StepGraph:
    """Builds the graph of a noise-free step of one member group per stage, ready for the jitted code.

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
        op=numbered(schedule, table),
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


def numbered(schedule: ScheduleOrder, table: LevelTable) -> Ints:
    """Returns [level, lane] the number of the op there, lane by lane in running order; -1 where the lane idles."""
    n_op = schedule.ops.n_op
    return np.where(table.op >= 0, table.op + (np.cumsum(n_op) - n_op), -1).astype(np.int32)
