"""Reports when a training run is done, with what probability, where its time goes, and what to change first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Bar, Bars, Block, Card, Facts, Note, Table, Tone, notes, tone_of_chance, waterfall
from ..core.readable import counted, duration, percent, prob, within
from ..core.report import WHERE_KNOWN, Report, RunRecord
from ..core.units import format_count, format_s
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
    """Interruptions of the job; `mttf_h`: mean hours between interruptions, None where there are none."""

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
    """Restart after an interruption; `spares_enough_prob`: share of the time that the spare nodes suffice."""

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
        expected_interval_s: 90% interval of the expected time over what is not known: rates, and the level of the step.
        goodput, goodput_interval: share of the wall time in steps that are kept: median and 90% of the worlds.
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
class RunCurve:
    """Wall time by probability, as a picture needs it.

    Attributes:
        level: probabilities, ascending.
        time_s, chance_s: quantiles over all that is uncertain, and over chance alone.
    """

    level: tuple[float, ...]
    time_s: tuple[float, ...]
    chance_s: tuple[float, ...]


@dataclass(frozen=True)
class RunReport(Report):
    """End of a training run with its probability, and where the time goes.

    Attributes:
        verdict: "predicted"; "unknown" where no failures are stated and none are published of such devices: then `outcome` is
            None and `response` is the answer.
        n_tokens: samples of the steps, in the job's own unit.
        step_s, noise_free_step_s: mean step, and step without variability.
        assumed: what was not stated, and what was taken instead.
        changes: what would save most, first.
        response: over the mean time between failures.
        curve: of the wall time, for pictures; absent where it is unknown and in reports of versions before 0.2.
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
    curve: Annotated[RunCurve | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        job, found = self.job, self.outcome
        verdict, tone = _unknown_verdict(self) if found is None else _verdict(self, found)
        return Card(
            f"{job.name}: {self.n_steps:,} steps on {job.n_devices:,} x {job.device}",
            verdict,
            tone,
            facts=_unknown_facts(self) if found is None else _facts(self, found),
            evidence=_evidence(self),
            assumptions=tuple(map(_in_short, self.assumed[:MOST_ASSUMED])),
            next_step=_next(self),
        )

    def blocks(self) -> Sequence[Block]:
        job, found = self.job, self.outcome
        work = {
            "job": f"{job.model} on {job.n_devices:,} x {job.device} ({job.cluster})",
            "work": f"{self.n_steps:,} steps, {format_count(self.n_tokens)} {job.sample_unit}",
            "steps alone": f"{format_s(self.step_s)} each: {duration(self.n_steps * self.step_s)} without interruptions",
        }
        return [
            Facts("Run", work),
            *([Table.of(BY_MTBF, self.response, RESPONSE)] if found is None else _outcome(self, found)),
            Facts("Failures, checkpoints and restarts", _setting(self)),
            *notes(self.assumed, "assumed"),
            *notes(self.notes),
        ]


MOST_ASSUMED = 2  # on the first screen
MOST_CHANGES = 4
LONGEST_CHANGE = 40  # characters of the first one on the first screen; longer ones without their values
MOST_CAUSES = 6
MOST_LOST = 3  # buckets on the first screen
SMALLEST_SHARE = 5e-4
NEVER_S = 1e12


def _verdict(report: RunReport, found: OutcomeFacts) -> tuple[str, Tone]:
    """Verdict: when the run is done, or whether by the deadline."""
    late = f"It takes {duration(found.time_s.p50)}; 1 in 20 such runs at least {duration(found.time_s.p95)}."
    if report.deadline is None:
        return late, "plain"
    chance = report.deadline.prob
    text = f"Done within {duration(report.deadline.deadline_s)} with probability {prob(chance)}."
    return text, tone_of_chance(chance)


def _facts(report: RunReport, found: OutcomeFacts) -> dict[str, str]:
    times = found.time_s
    lost = sorted(((value, name) for name, value in found.seconds.items() if name != "useful"), reverse=True)
    most = [(value, name.replace("_", " ")) for value, name in lost[:MOST_LOST] if value > 0.0]
    goodput = f"{percent(found.goodput)} {within(found.goodput_interval, percent)}"
    return {
        "wall time": f"median {duration(times.p50)} {within((times.p5, times.p95), duration)}",
        "steps": _steps_alone(report),
        "goodput": f"{goodput}, {found.interruptions:,.0f} interruptions",
        "lost to": ", ".join(f"{name} {percent(value / times.mean)}" for value, name in most),
    }


def _steps_alone(report: RunReport) -> str:
    """Time of all steps if nothing interrupts them."""
    return f"{duration(report.n_steps * report.step_s)} without interruptions, {format_s(report.step_s)} each"


def _unknown_verdict(report: RunReport) -> tuple[str, Tone]:
    return f"Finish date unknown: no failure rate is given, and none is published of {report.job.device}.", "unsure"


def _unknown_facts(report: RunReport) -> dict[str, str]:
    """The expected time at three failure rates."""
    rows = [row for row in report.response if row.expected_s < NEVER_S]
    shown = [rows[at] for at in sorted({0, len(rows) // 2, len(rows) - 1})] if rows else []
    each = {
        f"MTBF {duration(3600.0 * row.mtbf_h)}": f"expected {duration(row.expected_s)}, goodput {percent(row.goodput)}"
        for row in shown
    }
    return {"steps": _steps_alone(report), **each}


def _evidence(report: RunReport) -> str:
    found = report.reliability
    if found is None:
        return "none of failures; steps by the cost model"
    every = "none" if found.mttf_h is None else f"one per {duration(3600.0 * found.mttf_h)}"
    whose = "as stated" if found.source == "stated" else f"of {found.name}"
    return f"failures {whose}, {every}; steps by the cost model"


def _in_short(text: str) -> str:
    """An assumption without its source, and what states it."""
    head, *rest = text.split("; ")
    return "; ".join([re.split(r"(?<=\d s): | \(", head)[0], *rest[-1:]])


def _next(report: RunReport) -> str:
    if report.outcome is None:
        return "state --reliability PRESET|FILE or --mtbf TIME"
    if not report.changes:
        return ""
    first = report.changes[0]
    what = first.what if len(first.what) <= LONGEST_CHANGE else first.what.partition(":")[0]
    return f"{what}: saves {duration(first.saves_s)}"


def _outcome(report: RunReport, found: OutcomeFacts) -> list[Block]:
    """Quantiles of the wall time, where it goes, and what to change first."""
    times, errors, chance = found.time_s, found.mc_error_s, found.chance_s
    quantiles = {
        "": lambda name: "median" if name == "p50" else name,
        "all": lambda name: duration(getattr(times, name), getattr(errors, name)),
        "luck alone": lambda name: duration(getattr(chance, name)),
    }
    title = f"Wall time (± Monte Carlo error of {found.n_worlds:,} runs)"
    shares = {name: (value, value / times.mean) for name, value in found.seconds.items()}
    bars = [
        Bar(words(name), f"{duration(value)}  {share:.1%}", share)
        for name, (value, share) in shares.items()
        if abs(share) >= SMALLEST_SHARE
    ]
    waited = f"Of failures, {duration(found.waiting_s)} were spent waiting for nodes."
    saved = [(one.what, duration(one.saves_s)) for one in report.changes[:MOST_CHANGES]]
    return [
        Table.of(title, ("p50", "p95", "p99", "mean"), quantiles),
        Facts("", _outcome_facts(report, found)),
        Bars("Where the time goes (mean)", waterfall(bars)),
        Note(waited if found.waiting_s >= SMALLEST_SHARE * times.mean else ""),
        Table("What to change first (each alone, on average)", ("change", "saves"), saved),
    ]


def _outcome_facts(report: RunReport, found: OutcomeFacts) -> dict[str, str]:
    low, high = map(duration, found.expected_interval_s)
    goodput = f"{found.goodput:.3f} {within(found.goodput_interval, '{:.3f}'.format)}"
    return {
        "mean": f"{low} to {high} (90%) for all that failure rates and step time may be; the rest of the spread is luck",
        "goodput": f"{goodput}, {found.interruptions:,.1f} interruptions",
        "lost": f"{duration(max(found.extra_s, 0.0))} more than the steps alone without variability",
        "deadline": _deadline(report.deadline),
    }


def _deadline(asked: DeadlineFacts | None) -> str:
    if asked is None:
        return ""
    error = f" ± {100 * asked.mc_error:.1g}%" if 0.0 < asked.prob < 1.0 else ""
    return f"done within {duration(asked.deadline_s)} with probability {prob(asked.prob)}{error}"


BY_MTBF = "By the mean time between failures"
RESPONSE: dict[str, Callable[[Response], str]] = {
    "MTBF": lambda row: duration(3600.0 * row.mtbf_h),
    "checkpoint every": lambda row: duration(row.interval_s),
    "expected time": lambda row: duration(row.expected_s) if row.expected_s < NEVER_S else "never",
    "goodput": lambda row: f"{row.goodput:.3f}",
}


def _setting(report: RunReport) -> dict[str, str]:
    point, after, found = report.checkpoint, report.recovery, report.reliability
    how = "best by the formula" if point.is_chosen else "as stated"
    every = "step" if point.interval_steps == 1 else f"{point.interval_steps:,} steps"
    when = f"every {every}" if point.interval_steps < report.n_steps else "one, after the last step"
    behind = f", {duration(point.background_s)} more until it can be loaded" if point.background_s else ""
    blocking = f"blocking {duration(point.blocking_s)}{behind}"
    spares = f"{counted(after.spares, 'node')} ({after.policy}), enough {prob(after.spares_enough_prob)} of the time"
    return {
        "reliability": "" if found is None else _reliability(found),
        "source": "" if found is None else found.source,
        "checkpoint": f"{when} ({duration(point.interval_s)}, {how}), {blocking}",
        "restart": f"{duration(after.outage_s)} to the first step at full pace",
        "spares": "" if found is None else spares,
    }


def _reliability(found: ReliabilityFacts) -> str:
    """Interruptions, their causes, and slow phases."""
    every = "no interruptions" if found.mttf_h is None else f"an interruption every {duration(3600.0 * found.mttf_h)}"
    total = sum(one.per_hour for one in found.causes) or 1.0
    shares = ", ".join(f"{one.cause} {one.per_hour / total:.0%}" for one in found.causes[:MOST_CAUSES])
    slow = f"slow phases: {', '.join(found.slow_phases)}" if found.slow_phases else ""
    listed = "; ".join(filter(None, (shares, slow)))
    return f"{found.name}: {every}{f' ({listed})' if listed else ''}"
