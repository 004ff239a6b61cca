"""Levels of the ops of schedules, and when they end without randomness: any number of schedules side by side, in NumPy.

A level is a slot of order, not of time: an op stands at a later level than the op before it on its lane and than its
predecessors on other lanes. There are as few levels as the order allows; within them ops move to where predecessors are
near, so that the ring of end times stays short. Rules (q: model chunk, m: micro-batch): F(q,m) after F(q-1,m); B(q,m) after
B(q+1,m), the last chunk after its F; W(q,m) after B(q,m). Predecessors on the same lane are checked, but need no entry.

In a round every lane runs its next op, if what it waits for has run in a round before: the number of the round is the earliest
level of the op. A round costs its calls to NumPy and hardly what is in it, so lanes of many schedules run together. Round after
round, ops stand behind all that they wait for; end times take one more pass over them, with the sums and maxima of
`step_graph.cell` in single precision. So a plan takes the same time to the last bit here and in the compiled loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Ints, Positions
from ..core.errors import PlanError
from ..core.kernels import PASSES
from ..schedule.order import Op, Part, ScheduleOrder

Single = NDArray[np.float32]


class LevelTable(NamedTuple):
    """Level of every op, and the ops on other lanes that it waits for.

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


class OpGraph(NamedTuple):
    """Dependencies of the ops of a schedule on other lanes; ops count lane by lane in running order.

    Attributes:
        schedule: whose ops they are.
        lane: [op] that runs it.
        wait: [op, dep] number of the op that has to end before; that of all ops for none, one more where nobody runs it.
        edge: [op, dep] q of the edge between chunks q and q + 1 that is crossed, -1 for none.
    """

    schedule: ScheduleOrder
    lane: Positions
    wait: Positions
    edge: Positions


def op_graph(schedule: ScheduleOrder) -> OpGraph:
    """Looks up the ops that every op waits for.

    Raises:
        PlanError: a part runs twice.
    """
    ops, lane, n_micro_batch = schedule.ops, schedule.ops.stage, schedule.n_micro_batch
    n_op, n_kind = len(lane), schedule.n_chunk * n_micro_batch
    code = np.where(ops.kind >= 0, (ops.kind * schedule.n_chunk + ops.chunk) * n_micro_batch + ops.micro_batch, -1)
    op_of = np.full(3 * n_kind + 1, n_op + 1)
    op_of[code] = np.arange(n_op)[:, None]
    op_of[-1] = n_op  # of no part
    own = op_of[code]
    if (twice := (code >= 0) & (own != np.arange(n_op)[:, None])).any():
        raise PlanError(f"schedule {schedule.name} runs {Op((_part(int(code[twice][0]), schedule),))} twice")
    need = _needs(schedule)[code]
    wait = op_of[need]
    before = wait <= np.arange(n_op)[:, None]  # on its own lane, or itself
    wait = np.where(before & (np.append(lane, [-1, -1])[wait] == lane[:, None]), n_op, wait)
    edge = np.where(wait == n_op, -1, need % n_kind // n_micro_batch - (need >= n_kind))
    n_dep = (wait != n_op).sum(axis=1).max(initial=1)
    if n_dep < wait.shape[1]:  # what is there stands first
        first = np.argsort(wait == n_op, axis=1, kind="stable")[:, :n_dep]
        wait, edge = np.take_along_axis(wait, first, axis=1), np.take_along_axis(edge, first, axis=1)
    return OpGraph(schedule, lane, wait, edge)


def _needs(schedule: ScheduleOrder) -> Positions:
    """Code of the part that each waits for, -1 for none, [part]; codes count kinds, chunks, micro-batches, and no part is -1."""
    n_micro_batch = schedule.n_micro_batch
    n_kind = schedule.n_chunk * n_micro_batch
    code = np.arange(3 * n_kind)
    need = np.where(code < 2 * n_kind - n_micro_batch, code + n_micro_batch, code - n_kind)
    need[:n_kind] = np.where(code[:n_kind] >= n_micro_batch, code[:n_kind] - n_micro_batch, -1)
    return np.append(need, -1)


def _code(part: Part, schedule: ScheduleOrder) -> int:
    return (PASSES.index(part.kind) * schedule.n_chunk + part.chunk) * schedule.n_micro_batch + part.micro_batch


def _part(code: int, schedule: ScheduleOrder) -> Part:
    rest, micro_batch = divmod(code, schedule.n_micro_batch)
    kind, chunk = divmod(rest, schedule.n_chunk)
    return Part(PASSES[kind], micro_batch, chunk)


class Rounds:
    """Ops of graphs, one graph behind the other, sorted by the rounds in which they run.

    Args:
        graphs: may be the same several times.

    Attributes:
        order: [op] ops in the order in which they run.
        ends: [round + 1] where rounds begin in `order`, and the number of ops.
        level: [op] round in which each runs.

    Raises:
        PlanError: an order can never finish (names the ops that wait for each other).
    """

    def __init__(self, graphs: Sequence[OpGraph]) -> None:
        self.graphs = graphs
        self.first = np.cumsum([0, *(len(graph.lane) for graph in graphs)])
        self.n_op = n_op = int(self.first[-1])
        n_dep = max((graph.wait.shape[1] for graph in graphs), default=1)
        self._wait = np.full((n_dep, n_op), n_op)
        for graph, start in zip(graphs, self.first[:-1].tolist(), strict=True):
            n = len(graph.lane)
            own = np.where(graph.wait < n, graph.wait + start, graph.wait - n + n_op)
            self._wait[: own.shape[1], start : start + n] = own.T
        per_lane = np.concatenate([np.zeros(0, np.intp), *(graph.schedule.ops.n_op for graph in graphs)])
        last = np.cumsum(per_lane)
        self.last_of_lane = np.where(per_lane > 0, last - 1, n_op)  # of lanes without any: none
        self._is_last = np.zeros(n_op, dtype=np.bool_)
        self._is_last[last[per_lane > 0] - 1] = True
        self._run((last - per_lane)[per_lane > 0])

    def _run(self, at: Positions) -> None:
        """Sorts all ops, from those `at` which the lanes start."""
        done = np.zeros(self.n_op + 2, dtype=np.bool_)
        done[-2] = True
        rounds = []
        while at.size:
            ready = done[self._wait[0][at]]
            for wait in self._wait[1:]:
                ready &= done[wait[at]]
            run = at[ready]
            if not run.size:
                stuck = int(np.searchsorted(self.first, at[0], side="right")) - 1
                raise _deadlock(self.graphs[stuck], done[self.first[stuck] : self.first[stuck + 1]])
            done[run] = True
            rounds.append(run)
            going = ~(ready & self._is_last[at])
            at = at + ready if going.all() else (at + ready)[going]
        self.order = np.concatenate([np.zeros(0, np.intp), *rounds])
        self.ends = np.cumsum([0, *map(len, rounds)])
        self.level = np.empty(self.n_op, np.intp)
        self.level[self.order] = np.repeat(np.arange(len(rounds)), np.diff(self.ends))

    def neighbours(self, step: int) -> Positions:
        """Position of the op before (-1) or after (1) on its lane, [op] in running order; the number of ops for none."""
        ends = np.roll(self._is_last, 1) if step < 0 else self._is_last
        return self._positions(np.where(ends, self.n_op, np.arange(self.n_op) + step)[self.order])

    def _positions(self, ops: Positions) -> Positions:
        """Positions in running order of ops by number."""
        position = np.empty(self.n_op + 1, np.intp)
        position[self.order], position[-1] = np.arange(self.n_op), self.n_op
        return position[ops]

    def end_s(self, seconds: Single, lag_s: Single) -> Single:
        """Returns the times at which lanes end their last ops [lane]; ops last `seconds` [op] and wait `lag_s` [op, dep], 0 for
        none.
        """
        before, waits = self.neighbours(-1), [self._positions(wait[self.order]) for wait in self._wait]
        lags, seconds = [lag_s[self.order, dep] for dep in range(len(waits))], seconds[self.order]
        end = np.zeros(self.n_op + 1, np.float32)
        for a, b in pairwise(self.ends.tolist()):
            start = end[before[a:b]]
            for wait, lag in zip(waits, lags, strict=True):
                np.maximum(start, end[wait[a:b]] + lag[a:b], out=start)
            np.add(start, seconds[a:b], out=end[a:b])
        return end[self._positions(self.last_of_lane)]

    def late_before(self, split: Positions, n_level: Positions) -> Positions:
        """Levels, [split, op], when ops before level `split` run as late, the others as early as possible.

        Early forwards of a pipeline that fills wait long for their followers; late backwards of one that drains would wait
        long for theirs if they were put off. `n_level` [op] is of the op's schedule.
        """
        latest = np.append(np.where(self.level < split, n_level - 1, self.level), np.zeros((len(split), 1), np.intp), 1)
        latest = latest[:, np.append(self.order, -1)].T.copy()
        latest[-1] = n_level.max(initial=0) + 1
        followers = [self.neighbours(1), *self._followers()]
        for a, b in reversed([*pairwise(self.ends.tolist())]):
            for follower in followers:
                np.minimum(latest[a:b], latest[follower[a:b]] - 1, out=latest[a:b])
        found = np.empty((len(split), self.n_op), np.intp)
        found[:, self.order] = latest[:-1].T
        return found

    def _followers(self) -> Positions:
        """Positions of ops on other lanes that wait for each, [follower, op] in running order; the number of ops for none."""
        waiting = np.tile(np.arange(self.n_op), len(self._wait))
        target = self._wait.ravel()
        waiting, target = waiting[target < self.n_op], target[target < self.n_op]
        by_target = np.argsort(target, kind="stable")
        waiting, target = waiting[by_target], target[by_target]
        slot = np.arange(len(target)) - np.searchsorted(target, target)
        found = np.full((int(slot.max(initial=-1)) + 1, self.n_op), self.n_op)
        found[slot, target] = waiting
        return self._positions(found[:, self.order])


def _deadlock(graph: OpGraph, done: NDArray[np.bool_]) -> PlanError:
    """Names the ops that wait for each other, where lanes of `graph` stop at what follows the ops that are `done` [op]."""
    schedule, orders, need_of = graph.schedule, graph.schedule.orders, _needs(graph.schedule)
    n_done = np.bincount(graph.lane[done], minlength=len(orders)).tolist()
    lane_of = {part: lane for lane, order in enumerate(orders) for op in order for part in op.parts}
    ran = {part for order, n in zip(orders, n_done, strict=True) for op in order[:n] for part in op.parts}
    lane, seen, chain = next(s for s, n in enumerate(n_done) if n < len(orders[s])), [], []
    while lane not in seen:
        seen.append(lane)
        op = orders[lane][n_done[lane]]
        needs = [_part(code, schedule) for part in op.parts if (code := int(need_of[_code(part, schedule)])) >= 0]
        need = next(part for part in needs if part not in ran and part not in op.parts)
        chain.append(f"stage {lane} stops at {op}, which waits for {Op((need,))}")
        if need not in lane_of:
            return PlanError(f"schedule {schedule.name} cannot finish: {chain[-1]}, which no stage runs")
        lane = lane_of[need]
    return PlanError(f"schedule {schedule.name} deadlocks: " + "; ".join(chain[seen.index(lane) :]))


def level_table(schedule: ScheduleOrder) -> LevelTable:
    """Table of `schedule`, with as few levels as its order allows.

    Raises:
        PlanError: the order can never finish (names the ops that wait for each other), or runs a part twice.
    """
    return level_tables([op_graph(schedule)])[0]


def level_tables(graphs: Sequence[OpGraph]) -> list[LevelTable]:
    """Tables of several schedules, each as `level_table` makes it; together they take little longer than the longest.

    Raises:
        PlanError: an order can never finish.
    """
    rounds = Rounds(graphs)
    spans = [slice(a, b) for a, b in pairwise(rounds.first.tolist())]
    count = [int(rounds.level[own].max(initial=-1)) + 1 for own in spans]
    n_level = np.repeat(np.array(count, dtype=np.intp), np.diff(rounds.first))
    late = rounds.late_before(np.stack([n_level // 2, n_level * 7 // 8, n_level]), n_level)
    candidates = np.concatenate([rounds.level[None], late])
    return [_table(graph, candidates[:, own]) for graph, own in zip(graphs, spans, strict=True)]


def _table(graph: OpGraph, candidates: Positions) -> LevelTable:
    """Table by those of the `candidates` [candidate, op] under which the furthest predecessor is nearest."""
    dep_from, slot = np.nonzero(graph.wait < len(graph.lane))
    dep_to, lane = graph.wait[dep_from, slot], graph.lane
    level = min(candidates, key=lambda own: int((own[dep_from] - own[dep_to]).max(initial=0)))
    n_op = graph.schedule.ops.n_op
    op = np.full((int(level.max(initial=-1)) + 1, len(n_op)), -1, dtype=np.int32)
    op[level, lane] = np.arange(len(lane)) - (np.cumsum(n_op) - n_op)[lane]
    dep_level = np.full((*op.shape, graph.wait.shape[1]), -1, dtype=np.int32)
    dep_lane, dep_edge = np.zeros_like(dep_level), np.full_like(dep_level, -1)
    at = (level[dep_from], lane[dep_from], slot)
    dep_level[at], dep_lane[at], dep_edge[at] = level[dep_to], lane[dep_to], graph.edge[dep_from, slot]
    return LevelTable(op, dep_level, dep_lane, dep_edge)
