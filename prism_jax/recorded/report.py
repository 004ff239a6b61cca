"""Reports what a trace or log holds and how well its dependencies explain its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.report import INLINE, WHERE_KNOWN, Key, Report, RunRecord
from ..core.units import format_s
from ..trace.rank_times import RankExcess
from ..trace.stalls import Stalls, listed
from ..trace.trace import JobShape

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Quantiles:
    """p50, p95 and p99, in the unit of the field that holds them."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, quantile: Callable[[float], float]) -> Quantiles:
        """From the function that says the quantile of a probability."""
        return cls(quantile(0.5), quantile(0.95), quantile(0.99))


@dataclass(frozen=True)
class MeasuredQuantiles:
    """Of the held-out steps, seconds."""

    p50: float
    p95: float


@dataclass(frozen=True)
class NaiveScore:
    """How a simpler way fared."""

    p95_error: float
    ks_distance: float


@dataclass(frozen=True)
class HeldOutScore:
    """How a prediction fared on steps that were held out; errors relative and signed.

    Attributes:
        p95_covered: whether the interval holds the p95 of the held-out steps; of several splits, the share.
        p50_error, p95_error: predicted over measured, minus one.
        ks_distance: of the predicted distribution to the held-out steps.
        ks_floor: the same of the recorded step times that were fitted on, re-used as they are.
        predicted_s: expected of as many steps as were held out.
        long_run_s: of the predicted distribution itself.
        p95_interval_s: holds the p95 of the held-out steps with probability 0.9, says the prediction.
        naive: simpler way -> how it fared.
    """

    p95_covered: bool | float
    p50_error: float
    p95_error: float
    ks_distance: float
    ks_floor: float
    measured_s: MeasuredQuantiles
    predicted_s: Quantiles
    long_run_s: Quantiles
    p95_interval_s: tuple[float, float]
    naive: Mapping[str, NaiveScore]


@dataclass(frozen=True)
class SplitScore:
    """One split of the recorded steps: how many were fitted on and held out, and how the prediction fared."""

    n_train: int
    n_test: int
    score: Annotated[HeldOutScore, INLINE]


@dataclass(frozen=True)
class CriticalShares:
    """Shares of the critical path of the recorded steps, largest first; each sums to one.

    Attributes:
        by_op_type: op type, or host gaps -> share.
        by_rank: global rank -> share.
    """

    by_op_type: Mapping[str, float]
    by_rank: Mapping[str, float]


@dataclass(frozen=True)
class MedianError:
    """Median absolute error of replayed steps, relative."""

    median_abs_error: float


@dataclass(frozen=True)
class ReplayErrors:
    """Relative errors of replayed steps against recorded ones.

    Attributes:
        median_abs_error, p90_abs_error: by the rules of the schedule alone, without host gaps.
        with_observed_waits: with the waits that are read off the recording.
        with_host_gaps: with host gaps too.
    """

    median_abs_error: float
    p90_abs_error: float
    with_observed_waits: MedianError
    with_host_gaps: MedianError


@dataclass(frozen=True)
class RecordedJobFacts:
    """Degrees of a recorded job and how much of it was recorded."""

    shape: Annotated[JobShape, INLINE]
    world_size: int
    n_recorded_workers: int
    n_ops_per_replica: int


@dataclass(frozen=True)
class RecordedTimes(Quantiles):
    """Quantiles, mean and coefficient of variation of the recorded steps."""

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
        stalls: single steps far longer than those around them, if there are any.
        slow_ranks: of a log of ranks: those that are longer than the others in ordinary steps, slowest first.
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
    stalls: Annotated[Stalls | None, WHERE_KNOWN] = None
    slow_ranks: Annotated[tuple[RankExcess, ...] | None, WHERE_KNOWN] = None

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
        info = self.info
        lines = headline(info) + step_lines(info)
        if info.op_types is not None:
            lines += ["", "ops per replica and step, recorded seconds (waiting included)"]
            for name, facts in info.op_types.items():
                lines.append(
                    f"  {name:<28} {facts.ops_per_step:>6,}   median {format_s(facts.median_s)}, longest {format_s(facts.max_s)}"
                )
        return lines + notes(info)


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
        info, replayed = self.info, self.replay
        return [
            *headline(info),
            *step_lines(info),
            "replay of the recorded durations, median absolute error of the step",
            f"  by the rules of the schedule           {replayed.median_abs_error:.3%}",
            f"  with waits inferred from the recording {replayed.with_observed_waits.median_abs_error:.3%}",
            f"  with host gaps as well                 {replayed.with_host_gaps.median_abs_error:.3%}",
            *notes(info),
        ]


SMALLEST_SHARE = 0.001
FAR = 0.05  # of the step; a replay that far off is warned about


def notes(info: TraceFacts) -> list[str]:
    """What the reader should know about the recording."""
    return [f"note: {note}" for note in info.notes]


def warnings(doubts: Sequence[str]) -> list[str]:
    """Why not to trust the figures above."""
    return [f"warning: {doubt}" for doubt in doubts]


def headline(info: TraceFacts) -> list[str]:
    """Which job, and how much of it was recorded."""
    if info.job is None:
        return [f"{info.name}: step times of a log, no ops ({info.source})"]
    job, shape = info.job, info.job.shape
    axes = (
        " x ".join(f"{axis} {getattr(shape, axis)}" for axis in ("dp", "pp", "tp", "sp") if getattr(shape, axis) > 1)
        or "one rank"
    )
    chunks = f", {shape.virtual_stages} chunks per stage" if shape.virtual_stages > 1 else ""
    return [
        f"{shape.name}: {job.world_size:,} ranks, {axes}{chunks}",
        f"{job.n_recorded_workers:,} recorded workers, {job.n_ops_per_replica:,} ops per replica and step",
    ]


def step_lines(info: TraceFacts) -> list[str]:
    """The recorded steps: how long they are, what stalls take of the time, which ranks are slow."""
    times = info.step_s
    found = [
        f"{_steps(info)}: p50 {format_s(times.p50)}, mean {format_s(times.mean)}, p95 {format_s(times.p95)}, CV {times.cv:.2%}"
    ]
    if info.stalls is not None:
        found += _stalls(info.stalls)
    for slow in (info.slow_ranks or ())[:MOST_NAMED]:
        what = f"{slow.part} " if slow.part else ""
        found.append(
            f"rank {slow.rank} is slow: {what}+{slow.excess:.1%} of the step over the others ({slow.sigma:.0f} sigma)"
        )
    if len(info.slow_ranks or ()) > MOST_NAMED:
        found.append(f"  and {len(info.slow_ranks or ()) - MOST_NAMED:,} more ranks (--json lists them)")
    return found


MOST_NAMED = 8


def _stalls(found: Stalls) -> Iterator[str]:
    yield (
        f"stalls: {counted(found.n_stalls, 'step')} far above the others: {found.lost_share:.1%} of the time lost "
        f"({found.time_share:.1%} of it passes in them)"
    )
    for kind in found.kinds:
        when = (
            "single" if len(kind.steps) == 1 else "irregular" if kind.period is None else f"every {kind.period:,} steps"
        )
        steps = listed(kind.steps, MOST_NAMED)
        yield f"  {when}: {format_s(kind.typical_s)} where {format_s(kind.usual_s)} is usual ({steps})"
        for cause in kind.causes:
            where = f"{cause.ranks}: " if cause.ranks else ""
            what = f"{cause.part} takes" if cause.part else "the step takes"
            yield f"    {where}{what} {format_s(cause.seconds)} (usually {format_s(cause.usual_s)})"


def _steps(info: TraceFacts) -> str:
    if info.n_steps == 1:
        return f"1 step, number {info.first_step:,}"
    return f"{info.n_steps:,} steps between {info.first_step:,} and {info.last_step:,}"


def counted(n: int, what: str) -> str:
    """As "1 gap", "2 gaps"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
