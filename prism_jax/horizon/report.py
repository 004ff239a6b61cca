"""Reports when a training run is done, with what probability, where its time goes, and what to change first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..core.report import Report, RunRecord
from ..core.text_table import bar, duration, prob
from ..core.units import format_s
from ..explain.types import words
from ..prediction.figures import JobFacts
from .outcome import Response, RunChange


@dataclass(frozen=True)
class CauseFacts:
    """One cause of interruptions of this job: events per hour, and the standard deviation of their rate's logarithm."""

    cause: str
    per_hour: float
    log_sd: float
    noticed_s: float
    nodes_lost: float


@dataclass(frozen=True)
class ReliabilityFacts:
    """What interrupts the job; `mttf_h`: mean hours between interruptions, None where there are none."""

    name: str
    source: str
    mttf_h: float | None
    causes: tuple[CauseFacts, ...]
    slow_phases: tuple[str, ...]


@dataclass(frozen=True)
class CheckpointFacts:
    """Checkpoints: steps and seconds of work between two, whether these were chosen here, and what one costs."""

    interval_steps: int
    interval_s: float
    is_chosen: bool
    blocking_s: float
    background_s: float
    load_s: float
    source: str


@dataclass(frozen=True)
class RecoveryFacts:
    """What follows an interruption; `spares_enough_prob`: share of the time that the spare nodes suffice."""

    restart_s: float
    outage_s: float
    policy: str
    spares: int
    spares_enough_prob: float


@dataclass(frozen=True)
class RunTime:
    """Wall time, seconds."""

    mean: float
    p5: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class DeadlineFacts:
    """Probability that the run is done by the deadline, and its Monte Carlo error."""

    deadline_s: float
    prob: float
    mc_error: float


@dataclass(frozen=True)
class OutcomeFacts:
    """The run in many worlds.

    Attributes:
        time_s, mc_error_s: over chance and over what is not known, and the Monte Carlo error.
        chance_s: over chance alone, rates and the level of the step being as stated.
        expected_interval_s: 90 % interval of the expected time over what is not known: rates, and the level of the step.
        goodput, goodput_interval: share of the wall time in steps that are kept: median and 90 % of the worlds.
        seconds: bucket -> mean seconds; they add up to the mean time.
        waiting_s: part of the bucket `failure`: for nodes to come back.
        interruptions: mean number.
        expected_s: expected time by the exact form (constant rates, nodes there when needed): median over what is not known.
        extra_s: mean time above that of steps without variability, failures and checkpoints.
        interval_slope, mtbf_slope: seconds of expected time by second of the interval, and by second of the mean time to failure.
    """

    time_s: RunTime
    mc_error_s: RunTime
    chance_s: RunTime
    expected_interval_s: tuple[float, float]
    goodput: float
    goodput_interval: tuple[float, float]
    seconds: Mapping[str, float]
    waiting_s: float
    interruptions: float
    expected_s: float
    extra_s: float
    interval_slope: float
    mtbf_slope: float
    n_worlds: int


@dataclass(frozen=True)
class RunReport(Report):
    """When a training run is done, with what probability, and where its time goes.

    Attributes:
        verdict: "predicted"; "unknown" where nothing is said of failures: then `outcome` is None and `response` is the answer.
        n_tokens: samples of the steps, in the job's own unit.
        step_s, noise_free_step_s: mean step, and step without variability.
        assumed: what was not stated, and what was taken instead.
        changes: what would save most, first.
        response: over the mean time between failures.
    """

    kind: ClassVar[str] = "run"
    picture: ClassVar[str] = "prism_jax.horizon.picture:draw_run"

    job: JobFacts
    verdict: str
    n_steps: int
    n_tokens: float
    step_s: float
    noise_free_step_s: float
    reliability: ReliabilityFacts | None
    checkpoint: CheckpointFacts
    recovery: RecoveryFacts
    outcome: OutcomeFacts | None
    deadline: DeadlineFacts | None
    changes: tuple[RunChange, ...]
    response: tuple[Response, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    seed: int
    record: RunRecord

    def lines(self) -> list[str]:
        blocks = [_headline(self), _answer(self), _where(self), _changes(self), _setting(self), _footer(self)]
        found = [line.rstrip() for block in blocks if block for line in (*block, "")]
        return found[:-1]


MOST_CHANGES = 4
MOST_CAUSES = 6
SMALLEST_SHARE = 5e-4


def _headline(report: RunReport) -> list[str]:
    job = report.job
    return [
        f"{job.name}: {job.model} on {job.n_devices:,} x {job.device} ({job.cluster})",
        f"{report.n_steps:,} steps ({report.n_tokens:.4g} {job.sample_unit}) of {format_s(report.step_s)} each: "
        f"{duration(report.n_steps * report.step_s)} without interruptions",
    ]


def _answer(report: RunReport) -> list[str]:
    if report.outcome is None:
        return _unknown(report)
    found = report.outcome
    errors = found.mc_error_s
    rows = [
        f"  {words:<6} {duration(getattr(found.time_s, name), getattr(errors, name)):<18} "
        f"chance alone {duration(getattr(found.chance_s, name))}"
        for words, name in (("median", "p50"), ("p95", "p95"), ("p99", "p99"), ("mean", "mean"))
    ]
    low, high = found.expected_interval_s
    return [
        f"done in (± Monte Carlo error of {found.n_worlds:,} worlds)",
        *rows,
        f"  the mean lies between {duration(low)} and {duration(high)} (90 %) by what is not known: rates, level of the step",
        *_deadline(report),
        f"  goodput {found.goodput:.3f} (90 % of worlds {found.goodput_interval[0]:.3f} to {found.goodput_interval[1]:.3f}), "
        f"{found.interruptions:,.1f} interruptions",
        f"  {duration(max(found.extra_s, 0.0))} more than the steps alone without variability",
    ]


def _unknown(report: RunReport) -> list[str]:
    """No reliability was stated: what the answer depends on."""
    return [
        "UNKNOWN when it is done: nothing is said of failures. State --reliability PRESET|FILE, or --mtbf TIME.",
        "  time between failures   checkpoint every   expected time   goodput",
        *(
            f"  {f'{row.mtbf_h:g} h':<23} {duration(row.interval_s):<18} {_expected(row.expected_s):<15} {row.goodput:.3f}"
            for row in report.response
        ),
    ]


def _expected(seconds: float) -> str:
    return duration(seconds) if seconds < 1e12 else "never"


def _deadline(report: RunReport) -> list[str]:
    found = report.deadline
    if found is None:
        return []
    error = f" ± {100 * found.mc_error:.1g} %" if 0.0 < found.prob < 1.0 else ""
    return [f"  done within {duration(found.deadline_s)} with probability {prob(found.prob)}{error}"]


def _where(report: RunReport) -> list[str]:
    """Buckets of the mean wall time."""
    found = report.outcome
    if found is None:
        return []
    whole = found.time_s.mean
    return [
        "where the time goes (mean)",
        *(
            f"  {words(name):<43} {duration(value):>9}  {value / whole:6.1%} {bar(value / whole)}"
            for name, value in found.seconds.items()
            if abs(value) >= SMALLEST_SHARE * whole
        ),
        *_waiting(found),
    ]


def _waiting(found: OutcomeFacts) -> list[str]:
    if found.waiting_s < SMALLEST_SHARE * found.time_s.mean:
        return []
    return [f"  of failures, {duration(found.waiting_s)} were spent waiting for nodes"]


def _changes(report: RunReport) -> list[str]:
    if not report.changes:
        return []
    return [
        "what to change first (each alone, on average)",
        *(f"  {one.what:<44} saves {duration(one.saves_s)}" for one in report.changes[:MOST_CHANGES]),
    ]


def _setting(report: RunReport) -> list[str]:
    point, after = report.checkpoint, report.recovery
    how = "best by the exact form" if point.is_chosen else "as stated"
    every = "step" if point.interval_steps == 1 else f"{point.interval_steps:,} steps"
    when = (
        f"checkpoint every {every}" if point.interval_steps < report.n_steps else "one checkpoint, after the last step"
    )
    behind = f", {duration(point.background_s)} more until it can be loaded" if point.background_s else ""
    told = [] if report.reliability is None else _reliability(report.reliability)
    spares = f"; spares: {after.spares} nodes ({after.policy}), enough {prob(after.spares_enough_prob)} of the time"
    return [
        *told,
        f"{when} ({duration(point.interval_s)}, {how}), blocking {duration(point.blocking_s)}{behind}",
        f"restart to the first step at full pace: {duration(after.outage_s)}"
        + ("" if report.reliability is None else spares),
        *(f"assumed: {text}" for text in report.assumed),
    ]


def _reliability(found: ReliabilityFacts) -> list[str]:
    every = "no interruptions" if found.mttf_h is None else f"an interruption every {duration(3600.0 * found.mttf_h)}"
    total = sum(one.per_hour for one in found.causes) or 1.0
    shares = ", ".join(f"{one.cause} {one.per_hour / total:.0%}" for one in found.causes[:MOST_CAUSES])
    slow = f"slow phases: {', '.join(found.slow_phases)}" if found.slow_phases else ""
    listed = "; ".join(filter(None, (shares, slow)))
    return [
        f"reliability {found.name}: {every}{f' ({listed})' if listed else ''}",
        *([f"  {found.source}"] if found.source else []),
    ]


def _footer(report: RunReport) -> list[str]:
    return [f"note: {note}" for note in report.notes]
