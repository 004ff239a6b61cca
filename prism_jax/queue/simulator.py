"""Event simulation of a cluster: jobs arrive, start, are interrupted, and finish.

Ranks of waiting jobs change at events alone, and so do those of running jobs but for one drift common to all: heaps hold them,
one of the waiting jobs per number of GPUs (one in all where nobody overtakes) and one of the running jobs, the first to be
displaced on top. Entries of jobs that have moved on are passed over. An event costs O(log jobs + sizes).
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

import numpy as np

from ..core.arrays import Floats
from .jobs import QueueOutcome
from .policies import QueuePolicy, QueueView
from .world import World


class QueueSegment(NamedTuple):
    """A job on some GPUs for some time."""

    job: int
    start_s: float
    end_s: float
    gpus: tuple[int, ...]


def simulate(
    world: World,
    policy: QueuePolicy,
    estimate_s: Floats | None = None,
    *,
    restart_s: float = 0.0,
    segments: list[QueueSegment] | None = None,
) -> QueueOutcome:
    """Simulates the jobs of a world under a policy.

    Args:
        estimate_s: [job] duration as the scheduler takes it; the seen one if left out.
        restart_s: seconds that an interrupted job holds its GPUs, when it comes back, before it goes on.
        segments: takes every stretch of every job, for tests and pictures.
    """
    return _Run(world, policy, world.seen_s if estimate_s is None else estimate_s, restart_s, segments).result()


class _Run:
    """One simulation.

    Attributes:
        stamp: [job] raised whenever what the heaps hold of it becomes void.
        mark_s: [job] from when its running time is counted on.
        held: [job] its GPUs.
    """

    def __init__(
        self,
        world: World,
        policy: QueuePolicy,
        estimate_s: Floats,
        restart_s: float,
        segments: list[QueueSegment] | None,
    ) -> None:
        jobs, n = world.jobs, len(world.jobs)
        self.jobs, self.policy, self.restart_s, self.segments = jobs, policy, restart_s, segments
        self.submit_s, self.gpus = jobs.submit_s.tolist(), jobs.gpus.tolist()
        self.deadline_s = world.deadline_s
        self.factor = world.factor.tolist()
        self.left_s = world.work_s.tolist()
        self.view = QueueView(self.submit_s, self.gpus, world.deadline_s.tolist(), np.asarray(estimate_s).tolist())
        self.view.ran_s = [0.0] * n
        self.pool = policy.pool(self.factor, world.seed)
        self.stamp = [0] * n
        self.held: list[list[int]] = [[] for _ in range(n)]
        self.slow, self.start_s, self.mark_s = [1.0] * n, [0.0] * n, [0.0] * n
        self.end_s, self.used_s, self.n_stops = [inf] * n, [0.0] * n, [0] * n
        self.events: list[tuple[float, int, int, bool]] = []  # when, job, stamp, whether it is the end
        self.waiting: dict[int, list[tuple[float, int, int]]] = {}  # `line` -> heap of rank, job, stamp
        self.sizes: list[int] = []
        self.running: list[tuple[float, int, int]] = []  # heap of minus the rank at time zero, minus job, stamp

    def result(self) -> QueueOutcome:
        """Runs until the last job is done."""
        submit_s, events, n, arrived = self.submit_s, self.events, len(self.submit_s), 0
        view = self.view
        while arrived < n or events:
            now = min(submit_s[arrived] if arrived < n else inf, events[0][0] if events else inf)
            view.now_s = now
            changed = False
            while events and events[0][0] <= now:
                _, job, stamp, is_end = heappop(events)
                if stamp == self.stamp[job]:
                    changed = True
                    self.finish(job) if is_end else self.review(job)
            while arrived < n and submit_s[arrived] <= now:
                self.wait(arrived)
                arrived, changed = arrived + 1, True
            if changed:
                self.dispatch()
        return self.outcome()

    def wait(self, job: int) -> None:
        """`job` enters the queue."""
        size, stamp, view = self.line(job), self.stamp[job], self.view
        if size not in self.waiting:
            self.waiting[size] = []
            insort(self.sizes, size)
        heappush(self.waiting[size], (self.policy.rank(job, view), job, stamp))
        after_s = self.policy.review_s(job, view, False)
        if after_s < inf:
            heappush(self.events, (view.now_s + after_s, job, stamp, False))

    def dispatch(self) -> None:
        """Starts what can start, in the order of ranks."""
        pool, policy, most = self.pool, self.policy, inf
        while True:
            best = self.first_waiting(most)
            if best is None:
                return
            rank, job, _ = best
            size = self.gpus[job]
            missing = size - len(pool)
            displaced = self.displaced(rank, missing) if missing > 0 else []
            if displaced is not None:
                heappop(self.waiting[self.line(job)])
                for other in displaced:
                    self.stop(other)
                self.start(job)
                continue
            if not policy.backfills:
                return
            most = size - 1 if policy.preempts else len(pool)

    def line(self, job: int) -> int:
        """Key of the heap in which `job` waits: its GPUs; one for all where nobody overtakes."""
        return self.gpus[job] if self.policy.backfills else 0

    def first_waiting(self, most: float) -> tuple[float, int, int] | None:
        """Entry of the first waiting job of at most `most` GPUs, which stays on top of its heap."""
        best, stamp = None, self.stamp
        for size in self.sizes:
            if size > most:
                break
            heap = self.waiting[size]
            while heap and heap[0][2] != stamp[heap[0][1]]:
                heappop(heap)
            if heap and (best is None or heap[0] < best):
                best = heap[0]
        return best

    def displaced(self, rank: float, n_gpus: int) -> list[int] | None:
        """Running jobs of larger rank that make room for `n_gpus` more, the largest first; None if they do not suffice."""
        if not self.policy.preempts:
            return None
        running, stamp, limit = self.running, self.stamp, rank - self.policy.drift * self.view.now_s
        chosen = []
        while n_gpus > 0 and running:
            top = running[0]
            if top[2] != stamp[-top[1]]:
                heappop(running)
                continue
            if -top[0] <= limit:
                break
            chosen.append(heappop(running))
            n_gpus -= self.gpus[-top[1]]
        if n_gpus > 0:
            for entry in chosen:
                heappush(running, entry)
            return None
        return [-entry[1] for entry in chosen]

    def start(self, job: int) -> None:
        """`job` runs from now on."""
        now = self.view.now_s
        held = self.pool.take(self.gpus[job])
        slow = self.factor[held[0] if len(held) == 1 else max(held)]
        mark = now + self.restart_s if self.n_stops[job] else now
        self.held[job], self.slow[job], self.start_s[job], self.mark_s[job] = held, slow, now, mark
        self.stamp[job] += 1
        heappush(self.events, (mark + self.left_s[job] * slow, job, self.stamp[job], True))
        if self.policy.preempts:
            self.enlist(job)

    def enlist(self, job: int) -> None:
        """Puts a running job among those that can be displaced."""
        rank, after_s = self.policy.rank(job, self.view), self.policy.review_s(job, self.view, True)
        stamp = self.stamp[job]
        heappush(self.running, (self.policy.drift * self.view.now_s - rank, -job, stamp))
        if after_s < inf:
            heappush(self.events, (self.mark_s[job] + after_s, job, stamp, False))

    def review(self, job: int) -> None:
        """The rank of a job has changed by itself."""
        self.stamp[job] += 1
        if not self.held[job]:
            self.wait(job)
            return
        self.count(job)
        heappush(self.events, (self.mark_s[job] + self.left_s[job] * self.slow[job], job, self.stamp[job], True))
        self.enlist(job)

    def count(self, job: int) -> None:
        """Counts the work that a running job has done until now."""
        ran_s = self.view.now_s - self.mark_s[job]
        if ran_s > 0.0:
            self.view.ran_s[job] += ran_s
            self.left_s[job] -= ran_s / self.slow[job]
            self.mark_s[job] = self.view.now_s

    def stop(self, job: int) -> None:
        """A running job gives way, and waits again."""
        self.count(job)
        self.leave(job)
        self.n_stops[job] += 1
        self.wait(job)

    def leave(self, job: int) -> None:
        """A job gives its GPUs back."""
        now, held = self.view.now_s, self.held[job]
        self.pool.give(held)
        self.held[job] = []
        self.stamp[job] += 1
        self.used_s[job] += now - self.start_s[job]
        if self.segments is not None:
            self.segments.append(QueueSegment(job, self.start_s[job], now, tuple(held)))

    def finish(self, job: int) -> None:
        """A job is done."""
        self.leave(job)
        self.end_s[job] = self.view.now_s

    def outcome(self) -> QueueOutcome:
        """End time, GPU time and interruptions of every job."""
        return QueueOutcome(
            self.jobs, self.deadline_s, np.array(self.end_s), np.array(self.used_s), np.array(self.n_stops)
        )
