"""Reports what a trace or log holds and how well its dependencies explain its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Note, Table, left_out, notes
from ..core.readable import counted, percent, time_to
from ..core.report import INLINE, WHERE_KNOWN, Key, Report, RunRecord
from ..core.units import format_s
from ..trace.rank_times import RankExcess
from ..trace.stalls import StallCause, StallKind, Stalls, listed
from ..trace.trace import BusyClass, JobShape

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Quantiles:
    """p50, p95 and p99, in the unit of the field that holds them."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, quantile: Callable[[float], float]) -> Quantiles:
        """Quantiles from the function that returns the quantile of a probability."""
        return cls(quantile(0.5), quantile(0.95), quantile(0.99))


@dataclass(frozen=True)
class MeasuredQuantiles:
    """Quantiles of the held-out steps, seconds."""

    p50: float
    p95: float


@dataclass(frozen=True)
class NaiveScore:
    """Score of a simpler prediction."""

    p95_error: float
    ks_distance: float


@dataclass(frozen=True)
class HeldOutScore:
    """Score of a prediction on steps that were held out; errors relative and signed.

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
    """Number of ops of a type that a replica has in a step, and their recorded seconds, waiting included."""

    ops_per_step: int
    median_s: float
    max_s: float


@dataclass(frozen=True)
class TraceFacts:
    """Facts about a recording.

    Attributes:
        what: "trace" or "step log".
        name, job: the one of a log, the other of a trace.
        n_left_out: first entries that are not counted: warm-up, or what was asked to be skipped.
        op_types: of a trace.
        busy: of a profile: time of its kernels by rank and class.
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
    busy: Annotated[tuple[BusyClass, ...] | None, WHERE_KNOWN] = None
    stalls: Annotated[Stalls | None, WHERE_KNOWN] = None
    slow_ranks: Annotated[tuple[RankExcess, ...] | None, WHERE_KNOWN] = None

    @property
    def title(self) -> str:
        """Name of the job or of the log."""
        return self.job.shape.name if self.job is not None else self.name or ""


@dataclass(frozen=True)
class TraceInfoReport(Report):
    """Steps, workers and quantiles in a trace or log."""

    kind: ClassVar[str] = "trace-info"

    info: Annotated[TraceFacts, INLINE]

    def card(self) -> Card:
        info = self.info
        return Card(
            recording_title(info),
            f"{steps_words(info)} recorded: {step_words(info.step_s)}.",
            facts={"stalls": stall_words(info), "slow rank": slow_rank_words(info)},
            evidence=recorded_words(info),
            next_step="prism-jax trace predict: steps that were not recorded",
        )

    def blocks(self) -> Sequence[Block]:
        title = "Operations per replica and step (recorded seconds, waiting included)"
        ops = Table.named(title, "operation", (self.info.op_types or {}).items(), OP_TYPES)
        return (*recording_blocks(self.info), ops, *_busy_blocks(self.info), *notes(self.info.notes))


OP_TYPES: dict[str, Callable[[OpTypeFacts], str]] = {
    "number": lambda one: f"{one.ops_per_step:,}",
    "median": lambda one: format_s(one.median_s),
    "longest": lambda one: format_s(one.max_s),
}


def _busy_blocks(info: TraceFacts) -> list[Block]:
    """Time of kernels by class, over ranks."""
    if not info.busy:
        return []
    n_rank = len({one.rank for one in info.busy})
    total_s = sum(one.in_steps_s for one in info.busy) or 1.0
    rows = []
    for name in dict.fromkeys(one.kernel_class for one in info.busy):
        mine = [one for one in info.busy if one.kernel_class == name]
        inside = [one.in_steps_s for one in mine] + [0.0] * (n_rank - len(mine))
        spread = (format_s(min(inside)), format_s(max(inside))) if n_rank > 1 else ()
        whole = sum(one.n for one in mine), sum(one.seconds for one in mine) / n_rank
        mean = sum(inside) / n_rank
        rows.append(
            (
                mean,
                (name, percent(n_rank * mean / total_s), format_s(mean), *spread, f"{whole[0]:,}", format_s(whole[1])),
            )
        )
    rows = [row for _, row in sorted(rows, key=lambda row: -row[0])]
    spread = ("least", "most") if n_rank > 1 else ()
    columns = ("class", "share of steps", "in steps", *spread, "kernels of all", "recorded")
    title = f"Kernels by class ({'seconds of a rank, mean, least and most' if n_rank > 1 else 'seconds'}; streams may overlap)"
    return [Table(title, columns, rows)]


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

    def card(self) -> Card:
        info, replay, error = self.info, self.replay, self.replay.median_abs_error
        waits, gaps = (percent(one.median_abs_error) for one in (replay.with_observed_waits, replay.with_host_gaps))
        known = "explains" if error < FAR else "DOES NOT EXPLAIN"
        return Card(
            recording_title(info),
            f"The schedule {known} these steps: replayed, they are off by {percent(error)} (median).",
            "good" if error < FAR else "unsure",
            facts={
                "with waits": f"{waits} with the waits seen in the trace",
                "with gaps": f"{gaps} with the gaps of the CPU as well",
                "9 of 10": f"are off by at most {percent(replay.p90_abs_error)}, by the schedule alone",
            },
            evidence=recorded_words(info),
            next_step="prism-jax trace what-if: who slows it down",
        )

    def blocks(self) -> Sequence[Block]:
        return (*recording_blocks(self.info), *notes(self.info.notes))


SMALLEST_SHARE = 0.001
FAR = 0.05  # of the step; a replay that far off is warned about
MOST_NAMED = 8


def note_blocks(told: Sequence[str], doubts: Sequence[str] = ()) -> list[Block]:
    """Notes on the recording, and warnings why not to trust the figures above."""
    return [*(Note(f"warning: {one}", "unsure") for one in doubts), *notes(told)]


def recording_title(info: TraceFacts) -> str:
    """Title: the job, or the log."""
    if info.job is None:
        return f"{info.name}: step times of a log, no operations"
    shape = info.job.shape
    axes = [f"{axis} {getattr(shape, axis)}" for axis in ("dp", "pp", "tp", "sp") if getattr(shape, axis) > 1]
    chunks = f", {shape.virtual_stages} chunks per stage" if shape.virtual_stages > 1 else ""
    return f"{shape.name}: {counted(info.job.world_size, 'rank')}, {' x '.join(axes) or 'one rank'}{chunks}"


def step_words(times: Quantiles) -> str:
    """The median, and how far p95 and p99 lie above it."""
    over = ", ".join(f"{name} {percent(getattr(times, name) / times.p50 - 1.0, sign=True)}" for name in ("p95", "p99"))
    return f"median {time_to(times.p50, max(0.1 * (times.p95 - times.p50), 1e-4 * times.p50))}, {over}"


def steps_words(info: TraceFacts) -> str:
    """Number of steps, and their numbers, in words."""
    if info.n_steps == 1:
        return f"1 step, number {info.first_step:,}"
    return f"{info.n_steps:,} steps between {info.first_step:,} and {info.last_step:,}"


def recorded_words(info: TraceFacts) -> str:
    """Steps and workers on which an answer is based, in words."""
    workers = "" if info.job is None else f" of {counted(info.job.n_recorded_workers, 'recorded worker')}"
    left_out = f", {info.n_left_out:,} before them left out as warm-up" if info.n_left_out else ""
    return f"{counted(info.n_steps, 'step')}{workers}{left_out}"


def stall_words(info: TraceFacts) -> str:
    """Cost of single steps far above the others, in words."""
    if info.stalls is None:
        return "none: no single step far above the others"
    return f"{counted(info.stalls.n_stalls, 'step')} far above the others: {percent(info.stalls.lost_share)} of the time lost"


def slow_rank_words(info: TraceFacts) -> str:
    """The slowest rank, and how many others stand out."""
    if not info.slow_ranks:
        return ""
    worst, *others = info.slow_ranks
    rest = f", and {counted(len(others), 'other rank')}" if others else ""
    return f"rank {worst.rank}: {worst.excess:+.1%} of the step ({worst.sigma:.0f} sigma){rest}"


def recording_blocks(info: TraceFacts) -> list[Block]:
    """The recorded steps: how long they are, what stalls take of the time, which ranks are slow."""
    times, job = info.step_s, info.job
    ops = "" if job is None else f", {job.n_ops_per_replica:,} operations per replica and step"
    facts = {
        "source": info.source,
        "recorded": f"{recorded_words(info)}, numbers {info.first_step:,} to {info.last_step:,}{ops}",
        "step time": f"p50 {format_s(times.p50)}, mean {format_s(times.mean)}, p95 {format_s(times.p95)}, CV {times.cv:.2%}",
        "stalls": stall_words(info),
    }
    slow = info.slow_ranks or ()
    return [
        Facts("Recording", facts),
        Table.of("Stalled steps", info.stalls.kinds if info.stalls else (), STALLS),
        Table.of("Slow ranks", slow[:MOST_NAMED], SLOW_RANKS),
        left_out(len(slow), MOST_NAMED, "ranks"),
    ]


def _when(kind: StallKind) -> str:
    if len(kind.steps) == 1:
        return "single"
    return "irregular" if kind.period is None else f"every {kind.period:,} steps"


def _cause(one: StallCause) -> str:
    where = f"{one.ranks}: " if one.ranks else ""
    return f"{where}{one.part or 'step'} {format_s(one.seconds)} (usually {format_s(one.usual_s)})"


STALLS: dict[str, Callable[[StallKind], str]] = {
    "stalls": _when,
    "take": lambda kind: format_s(kind.typical_s),
    "usually": lambda kind: format_s(kind.usual_s),
    "steps": lambda kind: listed(kind.steps, MOST_NAMED),
    "because of": lambda kind: "; ".join(map(_cause, kind.causes)),
}
SLOW_RANKS: dict[str, Callable[[RankExcess], str]] = {
    "rank": lambda one: str(one.rank),
    "what": lambda one: one.part or "step",
    "of the step over others": lambda one: f"{one.excess:+.1%}",
    "sigma": lambda one: f"{one.sigma:.0f}",
}
