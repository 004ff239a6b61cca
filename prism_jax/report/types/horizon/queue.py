"""QueueReport: what scheduling policies make of the jobs of a cluster, and what a scheduler gains by knowing distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ....horizon.queue.compare import Row
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


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
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ...text.horizon.queue import lines

        return lines(self)
