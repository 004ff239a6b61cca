"""Steps of processes that share cores: a simulation event by event, in which all that compute have equal shares of the cores.

A process that computes alone on a core runs at full speed; where more processes compute than there are cores, each runs at cores
over processes. Waiting (transfers, host gaps) takes no core.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Task(NamedTuple):
    """One op.

    Attributes:
        process: that runs it; its tasks run one after another, in the order in which they are listed.
        work_s: seconds that it takes alone on a core.
        after: tasks (by index) that must have ended, and seconds that pass behind each of them.
        gap_s: host gap before it.
    """

    process: int
    work_s: float
    after: tuple[tuple[int, float], ...] = ()
    gap_s: float = 0.0


class Times(NamedTuple):
    """[task] seconds from the beginning of the step."""

    start_s: list[float]
    end_s: list[float]


def simulated(tasks: Sequence[Task], n_core: int) -> Times:
    """When every task runs.

    Raises:
        ValueError: tasks wait for each other in a circle.
    """
    start, end = [-1.0] * len(tasks), [-1.0] * len(tasks)
    waiting = _queues(tasks)
    coming: list[tuple[float, int]] = []  # (when it may start, task)
    running: dict[int, float] = {}  # task -> work that is left
    now = 0.0
    _release(tasks, waiting, end, coming, now)
    while coming or running:
        speed = min(1.0, n_core / max(len(running), 1))
        finish = min((left / speed for left in running.values()), default=float("inf"))
        arrive = coming[0][0] - now if coming else float("inf")
        passed = max(min(finish, arrive), 0.0)
        now += passed
        running = {task: left - passed * speed for task, left in running.items()}
        while coming and coming[0][0] <= now + 1e-12:
            task = heapq.heappop(coming)[1]
            start[task], running[task] = now, tasks[task].work_s
        for task in [one for one, left in running.items() if left <= 1e-12]:
            end[task] = now
            del running[task]
        _release(tasks, waiting, end, coming, now)
    if min(end, default=0.0) < 0.0:
        raise ValueError("tasks wait for each other")
    return Times(start, end)


def _queues(tasks: Sequence[Task]) -> dict[int, list[int]]:
    """process -> its tasks that have not begun, the next one last."""
    queues: dict[int, list[int]] = {}
    for index, task in enumerate(tasks):
        queues.setdefault(task.process, []).insert(0, index)
    return queues


def _release(
    tasks: Sequence[Task],
    waiting: Mapping[int, list[int]],
    end: Sequence[float],
    coming: list[tuple[float, int]],
    now: float,
) -> None:
    """Moves the next task of every process to those that are coming, where all that it waits for has ended."""
    for queue in waiting.values():
        if not queue:
            continue
        task = tasks[queue[-1]]
        before = [index for index, other in enumerate(tasks[: queue[-1]]) if other.process == task.process][-1:]
        if any(end[index] < 0.0 for index, _ in task.after) or any(end[index] < 0.0 for index in before):
            continue
        ready = max((end[index] + lag for index, lag in task.after), default=0.0)
        ready = max(ready, *(end[index] for index in before), 0.0) if before else ready
        heapq.heappush(coming, (max(ready + task.gap_s, now), queue.pop()))
