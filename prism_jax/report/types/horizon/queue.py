"""QueueReport: what scheduling policies make of the jobs of a cluster, and what a scheduler gains by knowing distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True)
class RatioFacts:
    """Mean job completion time over that of a reference in the same world: median and 90 % interval over seeds."""

    median: float
    p5: float
    p95: float


@dataclass(frozen=True)
class QueueFigures:
    """Of one policy with one estimate; means over seeds.

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


@dataclass(frozen=True)
class QueueRow:
    """One policy with one estimate.

    Attributes:
        cv: standard deviation over mean of the speed of GPUs.
        policy: its name.
        estimate: what it takes for a duration; empty where it does not look at durations.
        over_fifo: against first in, first out.
        over_point: against the same policy with point estimates; None where the policy does not look at durations.
    """

    cv: float
    policy: str
    estimate: str
    figures: Annotated[QueueFigures, INLINE]
    over_fifo: RatioFacts
    over_point: RatioFacts | None


@dataclass(frozen=True)
class QueueReport(Report):
    """A trace of jobs under several policies.

    Attributes:
        source, group: file, and the group of its jobs; empty for all.
        n_gpus, n_gpus_from: of the cluster, and where that number comes from.
        load: GPU-seconds submitted over those that the cluster has from the first submission to the last.
        span_s: from the first submission to the last.
        variability: whose shape the spread between GPUs has.
        slack: mean time to a deadline beyond the duration, over the duration; None where the trace has deadlines.
        restart_s: lost when an interrupted job comes back.
        n_seeds: worlds that were drawn.
        rows: by CV, policy and estimate.
    """

    kind: ClassVar[str] = "queue"
    renderer: ClassVar[str] = "horizon.queue"

    source: str
    group: str
    n_jobs: int
    n_gpus: int
    n_gpus_from: str
    load: float
    span_s: float
    variability: str
    slack: float | None
    restart_s: float
    n_seeds: int
    rows: tuple[QueueRow, ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
