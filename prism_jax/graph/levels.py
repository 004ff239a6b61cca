"""Levels: a table with one row per level and one column per lane that puts every op after what it waits for.

A level is a slot of order, not of time: an op stands at a later level than the op before it on its lane and than its
predecessors on other lanes. There are as few levels as the order allows; within them ops move to where predecessors are
near, so that the ring of end times stays short.

Rules (q: model chunk, m: micro-batch): F(q,m) after F(q-1,m); B(q,m) after B(q+1,m), the last chunk after its F; W(q,m) after
B(q,m). Predecessors on the same lane are checked, but need no entry: the lane's order implies them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._typing import Ints
from ..errors import PlanError
from ..kernels import PASSES
from ..schedule.order import Op, Part, ScheduleOrder


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
