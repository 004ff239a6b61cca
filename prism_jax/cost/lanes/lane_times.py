"""Lanes: how long tasks take that run beside each other on one device, each lane in its own order.

One lane computes, others communicate or copy. While a collective runs, compute makes progress at `1 / (1 + s)` of its own rate,
`s` the largest slow-down among the collectives that run; while compute runs, a collective makes progress at `share` of its own,
and slows compute by that share of `s`. A task is done when its work is done, so work is conserved: the rates are integrated from
event to event, which is the fixed point of "durations follow from overlaps, overlaps from durations" without iterating to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import SpecError

COMPUTE = 0  # the lane that is slowed
_DONE = 1e-15  # share of a task's work that rounding may leave


@dataclass(frozen=True, slots=True)
class Task:
    """Something that one lane does.

    Attributes:
        work_s: seconds by itself.
        lane: 0 computes.
        after: numbers of the tasks that must be done first, all smaller than its own.
        slows: what a collective adds to the time of compute beside it, as a share.
        share: of its own rate, at which a collective makes progress while compute runs.
    """

    work_s: float
    lane: int
    after: tuple[int, ...] = ()
    slows: float = 0.0
    share: float = 1.0


@dataclass(frozen=True)
class LaneTimes:
    """When tasks ran.

    Attributes:
        start_s, end_s: [task].
        idle_s: [lane] seconds in which compute waited for a task of that lane; of lane 0: for nothing.
        total_s: when the last task was done.
    """

    start_s: list[float]
    end_s: list[float]
    idle_s: list[float]
    total_s: float


def lane_times(tasks: Sequence[Task]) -> LaneTimes:
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

    def __init__(self, tasks: Sequence[Task]) -> None:
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
        """To the end."""
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
