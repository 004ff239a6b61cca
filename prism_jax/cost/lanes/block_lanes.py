"""Seconds of a block whose rows have an order: what of its communication shows follows from a simulation of its lanes.

One lane computes, one per group of ranks communicates. A collective starts when everything that was issued before it has been
computed, and the row that needs it waits. Parts that repeat are unrolled; where that would be too much, a few runs are simulated
and the last of them stands for the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..._typing import Floats
from ...kernels import COMM_AXES, PASSES
from ...workload.base import LanedBlock, LanedRow
from .lane_times import COMPUTE, Task, lane_times

MOST_TASKS = 20_000  # unrolled
_FEW = 6  # runs of a repeat that are simulated where there are more tasks


@dataclass(frozen=True)
class LanedSeconds:
    """Seconds of one block and micro-batch.

    Attributes:
        compute_s: [kind, compute_class] slowed by what runs beside it.
        exposed_s, hidden_s: [pass, comm_axis] of the forward and the backward pass.
    """

    compute_s: Floats
    exposed_s: Floats
    hidden_s: Floats


@dataclass(frozen=True)
class Overlapping:
    """How collectives and compute slow each other.

    Attributes:
        slows: what a collective adds to the time of compute beside it, as a share.
        share: of its own rate, at which a collective makes progress while compute runs.
    """

    slows: float
    share: float


def laned_seconds(
    block: LanedBlock, seconds: Sequence[float], classes: Sequence[int], n_class: int, overlapping: Overlapping
) -> LanedSeconds:
    """Simulates the forward and the backward pass.

    Args:
        seconds: [row] of one run of every row alone.
        classes: [row] index of the compute class of a kernel; of collectives not read.
        n_class: compute classes.
    """
    rows = list(block.laned)
    made = LanedSeconds(np.zeros((len(PASSES), n_class)), np.zeros((2, len(COMM_AXES))), np.zeros((2, len(COMM_AXES))))
    for number, phases in enumerate(("F", "BW")):
        own = [place for place, row in enumerate(rows) if row.phase in phases]
        if own:
            mine = [rows[i] for i in own], [seconds[i] for i in own], [classes[i] for i in own]
            one = _Pass(*mine, n_class, overlapping)
            one.add_to(made, number, block.repeats)
    return made


class _Pass:
    """Rows of one pass."""

    def __init__(
        self,
        rows: list[LanedRow],
        seconds: list[float],
        classes: list[int],
        n_class: int,
        overlapping: Overlapping,
    ) -> None:
        self.rows, self.seconds, self.classes, self.overlapping = rows, seconds, classes, overlapping
        self.n_class = n_class
        self.indices = [row.index for row in rows]
        groups = {(row.comm.axis, row.comm.stride, row.comm.size) for row in rows if row.comm is not None}
        self.lanes = {group: lane for lane, group in enumerate(sorted(groups), COMPUTE + 1)}

    def add_to(self, made: LanedSeconds, number: int, repeats: Sequence[tuple[int, int, int]]) -> None:
        """Adds what this pass takes."""
        spans = [self._span(repeat) for repeat in repeats]
        spans = [(start, stop, times) for start, stop, times in spans if stop > start]
        n_task = len(self.rows) + sum((stop - start) * (times - 1) for start, stop, times in spans)
        run = self._simulated if n_task <= MOST_TASKS else self._extrapolated
        compute, exposed, total = run(spans)
        made.compute_s[:] += compute
        made.exposed_s[number] += exposed
        made.hidden_s[number] += np.maximum(total - exposed, 0.0)

    def _span(self, repeat: tuple[int, int, int]) -> tuple[int, int, int]:
        """A repeat in places of this pass."""
        start, stop, times = repeat
        return bisect_left(self.indices, start), bisect_left(self.indices, stop), times

    def _extrapolated(self, spans: Sequence[tuple[int, int, int]]) -> tuple[Floats, Floats, Floats]:
        """A few runs of every repeat; every further one takes what the last of them took."""
        few = [(start, stop, min(times, _FEW)) for start, stop, times in spans]
        base = self._simulated(few)
        total = list(base)
        for place, (start, stop, times) in enumerate(spans):
            if times <= _FEW:
                continue
            fewer = [*few[:place], (start, stop, _FEW - 1), *few[place + 1 :]]
            less = self._simulated(fewer)
            total = [sum_ + (times - _FEW) * (one - other) for sum_, one, other in zip(total, base, less, strict=True)]
        return total[0], np.maximum(total[1], 0.0), total[2]

    def _simulated(self, spans: Sequence[tuple[int, int, int]]) -> tuple[Floats, Floats, Floats]:
        """(compute [kind, class], exposed [axis], communication [axis]) seconds."""
        order = _unrolled(len(self.rows), spans)
        tasks = self._tasks(order)
        times = lane_times(tasks)
        compute = np.zeros((len(PASSES), self.n_class))
        exposed, total = np.zeros(len(COMM_AXES)), np.zeros(len(COMM_AXES))
        for number, place in enumerate(order):
            row = self.rows[place]
            if row.comm is None:
                took = times.end_s[number] - times.start_s[number]
                compute[PASSES.index(row.phase), self.classes[place]] += took
            else:
                total[COMM_AXES.index(row.comm.axis)] += self.seconds[place]
        for (axis, _, _), lane in self.lanes.items():
            exposed[COMM_AXES.index(axis)] += times.idle_s[lane]
        return compute, exposed, total

    def _tasks(self, order: Sequence[int]) -> list[Task]:
        """Tasks of rows in the order in which they run."""
        tasks: list[Task] = []
        waited: dict[int, list[int]] = {}  # [task] collectives that it needs
        blocking: list[int] = []  # tasks that whatever is issued next has to wait for, until something is computed
        last_compute: tuple[int, ...] = ()
        place_of = _next_places(order, self.indices)
        for number, place in enumerate(order):
            row = self.rows[place]
            blocking += waited.pop(number, ())
            if row.comm is None:
                tasks.append(Task(self.seconds[place], COMPUTE, tuple(blocking)))
                last_compute, blocking = (number,), []
                continue
            lane = self.lanes[row.comm.axis, row.comm.stride, row.comm.size]
            beside = (0.0, 1.0) if row.wait is None else (self.overlapping.slows, self.overlapping.share)
            tasks.append(Task(self.seconds[place], lane, (*blocking, *last_compute), *beside))
            if row.wait is None:
                blocking.append(number)
            else:
                waited.setdefault(place_of(number, row.wait), []).append(number)
        return tasks


def _next_places(order: Sequence[int], indices: Sequence[int]) -> Callable[[int, int], int]:
    """Function of a task and the index of a row: the next task in order that is this row, or the first after it; or the end."""
    where: dict[int, list[int]] = {}
    for number, place in enumerate(order):
        where.setdefault(place, []).append(number)

    def place_of(number: int, index: int) -> int:
        place = bisect_left(indices, index)
        if place == len(indices):
            return len(order)
        runs = where[place]
        at = bisect_left(runs, number + 1)
        return runs[at] if at < len(runs) else len(order)

    return place_of


def _unrolled(n_row: int, spans: Sequence[tuple[int, int, int]]) -> list[int]:
    """Places of rows in the order in which they run."""
    order: list[int] = []
    at = 0
    for start, stop, times in sorted(spans):
        order += range(at, start)
        order += list(range(start, stop)) * times
        at = stop
    return [*order, *range(at, n_row)]
