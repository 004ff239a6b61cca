"""Seconds of a block whose rows have an order: its exposed communication follows from a simulation of its lanes.

One lane computes, one per group of ranks communicates or copies, each in its own order. A collective starts when everything
that was issued before it has been computed, and the row that needs it waits. While a collective runs, compute makes progress
at `1 / (1 + s)` of its own rate, `s` the largest slow-down among the collectives that run; while compute runs, a collective
makes progress at `share` of its own, and slows compute by that share of `s`. A task is done when its work is done, so work is
conserved: the rates are integrated from event to event, which is the fixed point of "durations follow from overlaps, overlaps
from durations". Parts that repeat are unrolled; where that would be too much, a few runs are simulated and the last of them
stands for the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from ..core.errors import SpecError
from ..core.kernels import COMM_AXES, PASSES
from ..workload.base.workload import LanedBlock, LanedRow

COMPUTE = 0  # the lane that is slowed
_DONE = 1e-15  # share of a task's work that rounding may leave


@dataclass(frozen=True, slots=True)
class LaneTask:
    """One piece of work of a lane.

    Attributes:
        work_s: seconds by itself.
        lane: 0 computes.
        after: numbers of the tasks that must be done first, all smaller than its own.
        slows: share that a collective adds to the time of simultaneous compute.
        share: of its own rate, at which a collective makes progress while compute runs.
    """

    work_s: float
    lane: int
    after: tuple[int, ...] = ()
    slows: float = 0.0
    share: float = 1.0


@dataclass(frozen=True)
class LaneTimes:
    """Start and end times of tasks.

    Attributes:
        start_s, end_s: [task].
        idle_s: [lane] seconds in which compute waited for a task of that lane; of lane 0: for nothing.
        total_s: when the last task was done.
    """

    start_s: list[float]
    end_s: list[float]
    idle_s: list[float]
    total_s: float


def lane_times(tasks: Sequence[LaneTask]) -> LaneTimes:
    """Runs every lane in the order of the numbers of its tasks.

    Raises:
        SpecError: a task waits for one that comes later, or for itself.
    """
    for number, task in enumerate(tasks):
        if any(not 0 <= other < number for other in task.after):
            raise SpecError(f"task {number} of a lane waits for {task.after}, but only earlier ones can be waited for")
    return _Run(tasks).run()


class _Run:
    """State of one simulation."""

    def __init__(self, tasks: Sequence[LaneTask]) -> None:
        self.tasks = tasks
        n_lane = 1 + max((task.lane for task in tasks), default=0)
        self.queues: list[list[int]] = [[] for _ in range(n_lane)]
        for number, task in enumerate(tasks):
            self.queues[task.lane].append(number)
        self.head = [0] * n_lane
        self.left = [task.work_s for task in tasks]
        self.start_s = [-1.0] * len(tasks)
        self.end_s = [-1.0] * len(tasks)
        self.idle_s = [0.0] * n_lane
        self.now_s = 0.0

    def run(self) -> LaneTimes:
        """Runs all tasks to their end."""
        n_done = 0
        while n_done < len(self.tasks):
            running = self._running()
            finished = [number for number in running if self.left[number] <= _DONE * self.tasks[number].work_s]
            if not finished:
                finished = self._advance(running)
            for number in finished:
                self.end_s[number] = self.now_s
                self.head[self.tasks[number].lane] += 1
            n_done += len(finished)
        return LaneTimes(self.start_s, self.end_s, self.idle_s, self.now_s)

    def _running(self) -> list[int]:
        """Heads of lanes whose tasks in front are done."""
        found = []
        for lane, queue in enumerate(self.queues):
            if self.head[lane] == len(queue):
                continue
            number = queue[self.head[lane]]
            if self.start_s[number] < 0.0:
                if any(self.end_s[other] < 0.0 for other in self.tasks[number].after):
                    continue
                self.start_s[number] = self.now_s
            found.append(number)
        return found

    def _advance(self, running: Sequence[int]) -> list[int]:
        """Time to the next end of a task; returns those that end."""
        tasks = self.tasks
        computes = any(tasks[number].lane == COMPUTE for number in running)
        slowest = max(
            (tasks[number].slows * tasks[number].share for number in running if tasks[number].lane != COMPUTE),
            default=0.0,
        )
        rates = [
            1.0 / (1.0 + slowest) if tasks[number].lane == COMPUTE else tasks[number].share if computes else 1.0
            for number in running
        ]
        needed = [self.left[number] / rate for number, rate in zip(running, rates, strict=True)]
        step_s = min(needed)
        if not computes:
            self.idle_s[self._blocking()] += step_s
        self.now_s += step_s
        finished = []
        for number, rate, need in zip(running, rates, needed, strict=True):
            if need <= step_s:
                self.left[number] = 0.0
                finished.append(number)
            else:
                self.left[number] -= rate * step_s
        return finished

    def _blocking(self) -> int:
        """The lane that compute waits for: that of the first unfinished task it needs, else the one with most left to do."""
        queue = self.queues[COMPUTE]
        if self.head[COMPUTE] < len(queue):
            waits = self.tasks[queue[self.head[COMPUTE]]].after
            lanes = [self.tasks[other].lane for other in waits if self.end_s[other] < 0.0]
            return lanes[0] if lanes else COMPUTE
        left = [sum(self.left[number] for number in own[self.head[lane] :]) for lane, own in enumerate(self.queues)]
        return left.index(max(left))


MOST_TASKS = 20_000  # unrolled
_FEW = 6  # runs of a repeat that are simulated where there are more tasks


@dataclass(frozen=True)
class LanedSeconds:
    """Seconds of one block and micro-batch.

    Attributes:
        compute_s: [kind, compute_class] slowed by communication that runs at the same time.
        exposed_s, hidden_s: [pass, comm_axis] of the forward and the backward pass.
    """

    compute_s: Floats
    exposed_s: Floats
    hidden_s: Floats


@dataclass(frozen=True)
class Overlapping:
    """Mutual slowdown of collectives and compute.

    Attributes:
        slows: share that a collective adds to the time of simultaneous compute.
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
        """Adds the seconds of this pass."""
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
        """A few runs of every repeat; every further one takes as long as the last of them."""
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

    def _tasks(self, order: Sequence[int]) -> list[LaneTask]:
        """Tasks of rows in the order in which they run."""
        tasks: list[LaneTask] = []
        waited: dict[int, list[int]] = {}  # [task] collectives that it needs
        blocking: list[int] = []  # tasks that the next issued task has to wait for, until something is computed
        last_compute: tuple[int, ...] = ()
        place_of = _next_places(order, self.indices)
        for number, place in enumerate(order):
            row = self.rows[place]
            blocking += waited.pop(number, ())
            if row.comm is None:
                tasks.append(LaneTask(self.seconds[place], COMPUTE, tuple(blocking)))
                last_compute, blocking = (number,), []
                continue
            lane = self.lanes[row.comm.axis, row.comm.stride, row.comm.size]
            beside = (0.0, 1.0) if row.wait is None else (self.overlapping.slows, self.overlapping.share)
            tasks.append(LaneTask(self.seconds[place], lane, (*blocking, *last_compute), *beside))
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
