"""StepGraph of a schedule: its order laid out in levels, with the seconds of `StepCost` (NumPy, or traced by JAX).

A level is a slot of order, not of time: an op stands at a later level than the op before it on its lane and than its
predecessors on other lanes. There are as few levels as the order allows; within them ops move to where predecessors are
near, so that the ring of end times stays short. Rules (q: model chunk, m: micro-batch): F(q,m) after F(q-1,m); B(q,m) after
B(q+1,m), the last chunk after its F; W(q,m) after B(q,m). Predecessors on the same lane are checked, but need no entry.

Ops of a lane that run the same kinds of work on the same chunks (and send over the same edges) have one *signature*, whatever
their micro-batch. Its seconds are computed once, for any number of plans (leading axes of the cost), and picked by index. An
op lasts the sum of its parts. Where a forward runs beside a backward (DualPipe), communication of either part runs beside the
compute of the other, as far as that compute is not already beside communication of its own part:

    exposed(F) = max(0, comm(F) - max(0, compute(BW) - hidden(BW))), and the same with F and BW exchanged;
    op = compute(F) + compute(BW) + exposed(F) + exposed(BW).

The exposed seconds keep the shares of their axes. Compute is not slowed further by what it hides; a cost model that knows by
how much puts that into `compute_s`. Handing activations over edge q (chunk q to q + 1) or gradients back takes `p2p_s[q]`,
nothing within a stage. Without blocking it is a lag between the ops; with `p2p_blocking` it is time of the sender, the sum
over its sends.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Ints, Values, is_numpy, namespace
from ..core.errors import PlanError
from ..core.kernels import PASSES
from ..cost.step import StepCost
from ..schedule.order import Op, Part, Placement, ScheduleOrder
from .step_graph import StepGraph


class LevelTable(NamedTuple):
    """Where every op stands and which ops on other lanes it waits for.

    Attributes:
        op: [level, lane] index into `schedule.orders[lane]`, -1 where the lane idles.
        dep_level: [level, lane, dep] level of a predecessor on another lane, -1 for none.
        dep_lane: [level, lane, dep] its lane, 0 for none.
        dep_edge: [level, lane, dep] q of the edge between chunks q and q + 1 that is crossed, -1 for none.
    """

    op: Ints
    dep_level: Ints
    dep_lane: Ints
    dep_edge: Ints


class _Codes:
    """Parts as integers (kind, chunk, micro-batch); `need[code]` is the part that `code` waits for, -1 for none."""

    def __init__(self, n_chunk: int, n_micro_batch: int) -> None:
        self.n_micro_batch = n_micro_batch
        self.n_kind = n_kind = n_chunk * n_micro_batch
        self._base = {name: index * n_kind for index, name in enumerate(PASSES)}
        code = np.arange(3 * n_kind)
        need = np.where(code < 2 * n_kind - n_micro_batch, code + n_micro_batch, code - n_kind)
        need[:n_kind] = np.where(code[:n_kind] >= n_micro_batch, code[:n_kind] - n_micro_batch, -1)
        self.need: list[int] = need.tolist()

    def of(self, op: Op) -> list[int]:
        base, n_micro_batch = self._base, self.n_micro_batch
        return [base[kind] + chunk * n_micro_batch + micro_batch for kind, micro_batch, chunk in op.parts]

    def part(self, code: int) -> Part:
        kind, rest = divmod(code, self.n_kind)
        chunk, micro_batch = divmod(rest, self.n_micro_batch)
        return Part(PASSES[kind], micro_batch, chunk)

    def edge(self, need: NDArray[np.intp]) -> NDArray[np.intp]:
        """q of the edge between chunks q and q + 1 that lies between a part and its `need` on another stage."""
        return need % self.n_kind // self.n_micro_batch - (need >= self.n_kind)


class _Runs(NamedTuple):
    """Ops in an order in which they can run: one entry per op, then one entry per dependency between lanes."""

    lane: list[int]
    index: list[int]
    level: list[int]  # as early as possible
    dep_from: list[int]  # position of the op that waits
    dep_to: list[int]  # position of the op it waits for
    dep_need: list[int]  # code of the part it waits for


def level_table(schedule: ScheduleOrder) -> LevelTable:
    """Table of `schedule`, with as few levels as its order allows.

    Raises:
        PlanError: the order can never finish (names the ops that wait for each other), or runs a part twice.
    """
    codes = _Codes(schedule.n_chunk, schedule.n_micro_batch)
    runs = _run(schedule, codes)
    dep_from, dep_to = np.array(runs.dep_from, dtype=np.intp), np.array(runs.dep_to, dtype=np.intp)

    def furthest(level: Ints) -> int:
        return int((level[dep_from] - level[dep_to]).max(initial=0))

    n_level = max(runs.level, default=-1) + 1
    splits = (0, n_level // 2, n_level * 7 // 8, n_level)
    candidates = [_late_before(runs, split, schedule.pp) for split in splits]
    return _table(runs, min(candidates, key=furthest), schedule.pp, codes)


def _run(schedule: ScheduleOrder, codes: _Codes) -> _Runs:
    """Run every lane as far as it gets, waking lanes that wait for what has just been done."""
    lanes = [[codes.of(op) for op in order] for order in schedule.orders]
    need_of, done = codes.need, [-1] * len(codes.need)  # code -> position
    runs = _Runs([], [], [], [], [], [])
    waiting: dict[int, list[int]] = {}  # code -> lanes blocked on it
    next_index, next_level = [0] * len(lanes), [0] * len(lanes)
    runnable = list(range(len(lanes)))
    while runnable:
        lane = runnable.pop()
        for index in range(next_index[lane], len(lanes[lane])):
            own = lanes[lane][index]
            needs = [need for code in own if (need := need_of[code]) >= 0 and need not in own]
            missing = [need for need in needs if done[need] < 0]
            if missing:
                waiting.setdefault(missing[0], []).append(lane)
                break
            position = len(runs.level)
            next_level[lane] = 1 + _append(runs, lane, index, next_level[lane], [(need, done[need]) for need in needs])
            next_index[lane] = index + 1
            for code in own:
                if done[code] >= 0:
                    raise PlanError(f"schedule {schedule.name} runs {Op((codes.part(code),))} twice")
                done[code] = position
                if code in waiting:
                    runnable.extend(waiting.pop(code))
    _check_finished(schedule, codes, next_index, done)
    return runs


def _append(runs: _Runs, lane: int, index: int, level: int, needed: list[tuple[int, int]]) -> int:
    """Add one op and its dependencies on other lanes; its level."""
    position = len(runs.level)
    for need, other in needed:
        if runs.lane[other] != lane:
            level = max(level, runs.level[other] + 1)
            runs.dep_from.append(position)
            runs.dep_to.append(other)
            runs.dep_need.append(need)
    runs.lane.append(lane)
    runs.index.append(index)
    runs.level.append(level)
    return level


def _check_finished(schedule: ScheduleOrder, codes: _Codes, next_index: list[int], done: list[int]) -> None:
    """Name the ops that wait for each other, if any lane is left over."""
    orders = schedule.orders
    blocked = [lane for lane, index in enumerate(next_index) if index < len(orders[lane])]
    if not blocked:
        return
    lane_of = {part: lane for lane, order in enumerate(orders) for op in order for part in op.parts}
    lane, seen, chain = blocked[0], [], []
    while lane not in seen:
        seen.append(lane)
        op = orders[lane][next_index[lane]]
        needs = [codes.need[code] for code in codes.of(op)]
        need = next(codes.part(n) for n in needs if n >= 0 and done[n] < 0 and codes.part(n) not in op.parts)
        chain.append(f"stage {lane} stops at {op}, which waits for {Op((need,))}")
        if need not in lane_of:
            raise PlanError(f"schedule {schedule.name} cannot finish: {chain[-1]}, which no stage runs")
        lane = lane_of[need]
    raise PlanError(f"schedule {schedule.name} deadlocks: " + "; ".join(chain[seen.index(lane) :]))


def _late_before(runs: _Runs, split: int, n_lane: int) -> Ints:
    """Levels when ops before level `split` run as late, the others as early as possible.

    Early forwards of a pipeline that fills wait long for their followers; late backwards of one that drains would wait long
    for theirs if they were put off.
    """
    if split == 0:
        return np.array(runs.level, dtype=np.int32)
    n_level = max(runs.level, default=-1) + 1
    latest = [n_level - 1 if level < split else level for level in runs.level]
    next_level = [n_level] * n_lane
    lanes, dep_from, dep_to = runs.lane, runs.dep_from, runs.dep_to  # looked up once: millions of ops pass here
    dep = len(dep_from) - 1
    for position in range(len(latest) - 1, -1, -1):
        lane, level = lanes[position], latest[position]
        if level >= next_level[lane]:
            latest[position] = level = next_level[lane] - 1
        next_level[lane] = level
        while dep >= 0 and dep_from[dep] == position:
            if latest[dep_to[dep]] >= level:
                latest[dep_to[dep]] = level - 1
            dep -= 1
    return np.array(latest, dtype=np.int32)


def _table(runs: _Runs, level: Ints, n_lane: int, codes: _Codes) -> LevelTable:
    lane = np.array(runs.lane, dtype=np.int32)
    dep_from, dep_to = np.array(runs.dep_from, dtype=np.intp), np.array(runs.dep_to, dtype=np.intp)
    slot = np.arange(len(dep_from)) - np.searchsorted(dep_from, dep_from)  # an op's dependencies stand together
    n_level = int(level.max(initial=-1)) + 1
    op = np.full((n_level, n_lane), -1, dtype=np.int32)
    op[level, lane] = runs.index
    dep_level = np.full((n_level, n_lane, int(slot.max(initial=0)) + 1), -1, dtype=np.int32)
    dep_lane = np.zeros_like(dep_level)
    dep_edge = np.full_like(dep_level, -1)
    at = (level[dep_from], lane[dep_from], slot)
    dep_level[at] = level[dep_to]
    dep_lane[at] = lane[dep_to]
    dep_edge[at] = codes.edge(np.array(runs.dep_need, dtype=np.intp))
    return LevelTable(op, dep_level, dep_lane, dep_edge)


Index = NDArray[np.intp]


class Signatures(NamedTuple):
    """Different ops of a schedule; up to three parts each.

    Attributes:
        of_op: [level, lane] signature of the op there, -1 where the lane idles.
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
    edges, direction = _edges(schedule.stage_of), schedule.stage_of.direction
    known: dict[tuple[int, tuple[tuple[int, int, int], ...]], int] = {}
    of_op = np.full(table.op.shape, -1, dtype=np.intp)
    for lane, order in enumerate(schedule.orders):
        ids = [
            known.setdefault(
                (
                    lane,
                    tuple(
                        [
                            (_KIND[kind], chunk, edges[kind][direction[micro_batch]][chunk])
                            for kind, micro_batch, chunk in op.parts
                        ]
                    ),
                ),
                len(known),
            )
            for op in order
        ]
        levels = np.flatnonzero(table.op[:, lane] >= 0)
        of_op[levels, lane] = np.array(ids, dtype=np.intp)[table.op[levels, lane]]
    n_part = max((len(parts) for _, parts in known), default=1)
    parts = np.full((len(known), n_part, 3), -1, dtype=np.intp)
    for row, (_, own) in enumerate(known):
        parts[row, : len(own)] = own
    return Signatures(of_op, np.array([lane for lane, _ in known]), parts[..., 0], parts[..., 1], parts[..., 2])


_KIND = {name: index for index, name in enumerate(PASSES)}


def _edges(placement: Placement) -> dict[str, list[list[int]]]:
    """[kind][direction][chunk] edge that is crossed: F of chunk q sends over edge q, B over edge q - 1, W nowhere.

    Nothing is sent within a stage or past the ends.
    """
    sent = [[q if stage != after else -1 for q, (stage, after) in enumerate(pairwise(own))] for own in placement.stages]
    return {
        "F": [[*own, -1] for own in sent],
        "B": [[-1, *own] for own in sent],
        "W": [[-1] * len(own) for own in placement.stages],
    }


def signature_seconds(sigs: Signatures, compute_s: Values, comm_s: Values, hidden_s: Values) -> tuple[Values, Values]:
    """Compute [*plan, signature, class] and exposed communication [*plan, signature, axis] seconds.

    Args:
        sigs: of the schedule.
        compute_s, comm_s, hidden_s: as in `StepCost`, [*plan, kind, chunk, class or axis]; may be traced by JAX.

    Notes:
        Where an op holds a forward and a backward part, the communication of each runs beside what compute the other has free.
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
    """Share of `comm_s` that does not fit beside `beside_s` of compute; 0 where there is no communication."""
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


def _placed(seconds: Values, of_op: NDArray[np.intp], xp: Any) -> Values:
    """[level, lane, ...] of values [signature, ...]; zero where a lane idles."""
    return xp.concatenate([seconds, 0.0 * seconds[:1]])[of_op]


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
