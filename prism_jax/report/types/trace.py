"""Reports on recorded jobs: what a trace holds, how it replays, what comes next, and what changes would bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...recorded.score import ReplayErrors
from ...recorded.trace.op_table import JobShape
from ..codec import INLINE, WHERE_KNOWN, Key
from ..report import Report
from .record import RunRecord


@dataclass(frozen=True)
class RecordedJobFacts:
    """Degrees of a recorded job and how much of it was recorded."""

    shape: Annotated[JobShape, INLINE]
    world_size: int
    n_recorded_workers: int
    n_ops_per_replica: int


@dataclass(frozen=True)
class RecordedTimes:
    """Quantiles, mean and coefficient of variation of the recorded steps."""

    p50: float
    p95: float
    p99: float
    mean: float
    cv: float


@dataclass(frozen=True)
class OpTypeFacts:
    """How many ops of a type a replica has in a step, and their recorded seconds, waiting included."""

    ops_per_step: int
    median_s: float
    max_s: float


@dataclass(frozen=True)
class TraceFacts:
    """What was recorded.

    Attributes:
        what: "trace" or "step log".
        name, job: the one of a log, the other of a trace.
        n_left_out: first entries that are not counted: warm-up, or what was asked to be skipped.
        op_types: of a trace.
    """

    what: Annotated[str, Key("kind")]
    source: str
    n_steps: int
    first_step: int
    last_step: int
    step_s: RecordedTimes
    notes: tuple[str, ...]
    n_left_out: Annotated[int | None, WHERE_KNOWN] = None
    name: Annotated[str | None, WHERE_KNOWN] = None
    job: Annotated[RecordedJobFacts | None, WHERE_KNOWN] = None
    op_types: Annotated[Mapping[str, OpTypeFacts] | None, WHERE_KNOWN] = None

    @property
    def title(self) -> str:
        """Name of the job or of the log."""
        return self.job.shape.name if self.job is not None else self.name or ""


@dataclass(frozen=True)
class TraceInfoReport(Report):
    """What a trace or log holds."""

    kind: ClassVar[str] = "trace-info"

    info: Annotated[TraceFacts, INLINE]

    def lines(self) -> list[str]:
        from ..text.trace.info import lines

        return lines(self)


@dataclass(frozen=True)
class TraceReplayReport(Report):
    """The recorded durations replayed, against the recorded steps.

    Attributes:
        steps, recorded_s: [step] number and recorded seconds.
    """

    kind: ClassVar[str] = "trace-replay"

    info: Annotated[TraceFacts, INLINE]
    replay: ReplayErrors
    steps: tuple[int, ...]
    recorded_s: tuple[float, ...]
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ..text.trace.replay import lines

        return lines(self)
