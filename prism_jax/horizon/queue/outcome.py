"""Outcome: when every job was done, and the figures that say how good a schedule is."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from ..._typing import Floats, Ints
from .jobs import QueuedJobs


@dataclass(frozen=True)
class Figures:
    """Of one schedule.

    Attributes:
        jct_mean_s, jct_p50_s, jct_p95_s, jct_p99_s: job completion time: from submission to the end.
        waiting_mean_s: of it, without GPUs.
        makespan_s: from the first submission to the last end.
        on_time_prob: share of jobs that end before their deadline.
        interruptions: per job.
    """

    jct_mean_s: float
    jct_p50_s: float
    jct_p95_s: float
    jct_p99_s: float
    waiting_mean_s: float
    makespan_s: float
    on_time_prob: float
    interruptions: float

    def values(self) -> tuple[float, ...]:
        """In order."""
        return tuple(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of the jobs.

    Attributes:
        jobs, deadline_s: as in the world.
        end_s: [job] on the clock of the trace.
        used_s: [job] seconds that it held its GPUs, restarts included.
        n_stops: [job] how often it was interrupted.
    """

    jobs: QueuedJobs
    deadline_s: Floats
    end_s: Floats
    used_s: Floats
    n_stops: Ints

    @property
    def jct_s(self) -> Floats:
        """[job] completion time."""
        return self.end_s - self.jobs.submit_s

    def figures(self) -> Figures:
        """What is reported."""
        jct_s = self.jct_s
        p50, p95, p99 = np.quantile(jct_s, (0.5, 0.95, 0.99)).tolist()
        return Figures(
            float(jct_s.mean()),
            p50,
            p95,
            p99,
            float((jct_s - self.used_s).mean()),
            float(self.end_s.max() - self.jobs.submit_s[0]),
            float((self.end_s <= self.deadline_s).mean()),
            float(self.n_stops.mean()),
        )
