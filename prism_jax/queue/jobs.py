"""Defines queued jobs (when submitted, how many GPUs, how long), the GPUs that they keep busy, and the outcome of a schedule."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil

import numpy as np

from ..core.arrays import Floats, Ints
from ..core.errors import DataError

MOST_GPUS = 1_000_000  # of a cluster
MOST_LOAD = 0.9  # GPU-seconds submitted over those that there are: beyond, the queue only grows


@dataclass(frozen=True, eq=False)
class QueuedJobs:
    """Jobs of a trace, in the order of submission.

    Attributes:
        submit_s: [job] seconds since any origin, not decreasing.
        gpus: [job] that a job needs, all at once.
        duration_s: [job] that it runs on GPUs without variability.
        deadline_s: [job] on the same clock; None where the trace has none.
    """

    submit_s: Floats
    gpus: Ints
    duration_s: Floats
    deadline_s: Floats | None = None

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def work_gpu_s(self) -> float:
        """GPU-seconds of all jobs."""
        return float(self.gpus @ self.duration_s)

    def busy_gpus(self, percent: float) -> int:
        """GPUs that would be busy, if nothing ever waited, in all but `100 - percent` % of the time of the trace."""
        at_s = np.concatenate([self.submit_s, self.submit_s + self.duration_s])
        change = np.concatenate([self.gpus, -self.gpus])
        order = np.argsort(at_s, kind="stable")
        busy = np.cumsum(change[order])[:-1]
        lasting_s = np.diff(at_s[order])
        by_size = np.argsort(busy, kind="stable")
        share = np.cumsum(lasting_s[by_size]) / lasting_s.sum()
        return int(busy[by_size][min(np.searchsorted(share, percent / 100.0), len(busy) - 1)])


def capacity_of(jobs: QueuedJobs, percent: float) -> int:
    """GPUs of a cluster for jobs of a trace that does not say how many there were.

    `busy_gpus(percent)`; but what the largest job needs, and what keeps the load at `MOST_LOAD`, at least.
    """
    span_s = float(jobs.submit_s[-1] - jobs.submit_s[0])
    steady = ceil(jobs.work_gpu_s / span_s / MOST_LOAD) if span_s > 0.0 else 1
    return min(max(jobs.busy_gpus(percent), int(jobs.gpus.max()), steady), MOST_GPUS)


def check_capacity(jobs: QueuedJobs, n_gpus: int) -> None:
    """Whether every job fits into the cluster.

    Raises:
        DataError: no GPU, too many, or a job needs more than there are.
    """
    if not 1 <= n_gpus <= MOST_GPUS:
        raise DataError(f"gpus = {n_gpus:,}, but a cluster has 1 to {MOST_GPUS:,}")
    largest = int(jobs.gpus.max())
    if largest > n_gpus:
        n_larger = int((jobs.gpus > n_gpus).sum())
        raise DataError(
            f"gpus = {n_gpus:,}, but {n_larger:,} jobs need more (up to {largest:,}). Give at least {largest:,}, or leave "
            "those jobs out."
        )


@dataclass(frozen=True)
class QueueFigures:
    """Figures of one schedule.

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
        """Values in order."""
        return tuple(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, eq=False)
class QueueOutcome:
    """End time, GPU time and interruptions of every job.

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

    def figures(self) -> QueueFigures:
        """Figures that are reported."""
        jct_s = self.jct_s
        p50, p95, p99 = np.quantile(jct_s, (0.5, 0.95, 0.99)).tolist()
        return QueueFigures(
            float(jct_s.mean()),
            p50,
            p95,
            p99,
            float((jct_s - self.used_s).mean()),
            float(self.end_s.max() - self.jobs.submit_s[0]),
            float((self.end_s <= self.deadline_s).mean()),
            float(self.n_stops.mean()),
        )
