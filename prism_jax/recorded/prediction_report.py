"""Reports predictions from recorded traces: steps not recorded, who slowed the job down, what a change would bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.report import INLINE, WHERE_KNOWN, Key, Report, RunRecord
from ..core.text_table import bar, time_with_error
from ..core.units import format_s
from .prediction import MomentMatch
from .report import (
    FAR,
    SMALLEST_SHARE,
    CriticalShares,
    HeldOutScore,
    Quantiles,
    ReplayErrors,
    SplitScore,
    TraceFacts,
    counted,
    headline,
    notes,
    step_lines,
    warnings,
)


@dataclass(frozen=True)
class PredictedJobChange:
    """The job that is predicted, where it is not the recorded one."""

    n_replica: int | None = None
    n_micro_batch: int | None = None

    def described(self) -> str:
        """As "16 replicas, 12 micro-batches"; empty for the recorded job."""
        counts = {"replica": self.n_replica, "micro-batch": self.n_micro_batch}
        plural = {"replica": "replicas", "micro-batch": "micro-batches"}
        return ", ".join(f"{n} {name if n == 1 else plural[name]}" for name, n in counts.items() if n is not None)


@dataclass(frozen=True)
class Intervals3:
    """Bounds of p50, p95 and p99."""

    p50: tuple[float, float]
    p95: tuple[float, float]
    p99: tuple[float, float]


@dataclass(frozen=True)
class PredictedSteps(Quantiles):
    """The long-run distribution: quantiles, their interval from the few recorded steps, their Monte Carlo error."""

    interval: Intervals3
    mc_error: Quantiles
    level: float


@dataclass(frozen=True)
class ShapeFacts:
    """Family chosen for the factor that micro-batches share, and how families fared; empty where there is none."""

    chosen: Annotated[str | None, WHERE_KNOWN] = None
    held_out_log_density: Annotated[Mapping[str, float] | None, WHERE_KNOWN] = None


@dataclass(frozen=True)
class EvidenceFacts:
    """Which shared factors were found, and the waits that no rule states.

    Attributes:
        variance_shares: level -> share of the variance of compute.
        p_values: of a step effect and of ranks.
        strata: level -> how many times as much its means vary as independent parts would make them.
    """

    variance_shares: Mapping[str, float]
    p_values: Mapping[str, float]
    strata: Mapping[str, float]
    shape: ShapeFacts
    has_micro_batches: bool
    agreement: MomentMatch
    observed_waits: tuple[str, ...]
    unexplained_waits: int


@dataclass(frozen=True)
class CheckFacts:
    """Averages over splits; what follows `score` is there where there are several."""

    score: Annotated[HeldOutScore, INLINE]
    p95_error_median: Annotated[float | None, WHERE_KNOWN] = None
    p95_abs_error_median: Annotated[float | None, WHERE_KNOWN] = None
    ks_distance_median: Annotated[float | None, WHERE_KNOWN] = None
    splits: Annotated[tuple[SplitScore, ...] | None, WHERE_KNOWN] = None


@dataclass(frozen=True)
class TracePredictionReport(Report):
    """Distribution of the steps that were not recorded, and how predictions fared on steps held out.

    Attributes:
        fit_replicas: replicas that the check fits on; None for all.
        n_train, n_test: steps that the check fits on and predicts; n_test is 0 without a check.
        doubts: why not to trust the prediction, one sentence each.
        evidence, replay: of a trace.
        check: absent without a check.
    """

    kind: ClassVar[str] = "trace-prediction"
    picture: ClassVar[str] = "prism_jax.recorded.picture:draw_trace_prediction"

    info: Annotated[TraceFacts, INLINE]
    asked: PredictedJobChange
    fit_replicas: int | None
    n_train: int
    n_test: int
    steps_s: PredictedSteps
    record: Annotated[RunRecord, INLINE]
    doubts: tuple[str, ...] = ()
    evidence: Annotated[EvidenceFacts | None, WHERE_KNOWN] = None
    replay: Annotated[ReplayErrors | None, WHERE_KNOWN] = None
    check: Annotated[CheckFacts | None, INLINE, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        info, steps = self.info, self.steps_s
        lines = [*headline(info), *step_lines(info), "", f"unrecorded steps{_asked(self.asked)}"]
        for name in ("p50", "p95", "p99"):
            low, high = getattr(steps.interval, name)
            estimate = time_with_error(getattr(steps, name), getattr(steps.mc_error, name))
            known = f"{format_s(low)} to {format_s(high)} at {steps.level:.0%}, from {counted(info.n_steps, 'recorded step')}"
            lines.append(f"  {name}   {estimate}   ({known})")
        lines += warnings(self.doubts)
        if _of_whole_steps(self):
            lines += ["whole recorded steps are redrawn, as nothing within a step can be recombined"]
        if self.evidence is not None:
            lines += ["", *_evidence(self.evidence)]
        if self.check is not None:
            lines += ["", *_check(self, self.check)]
        return lines + _unreplayed(self) + notes(info)


@dataclass(frozen=True)
class WhatIfReport(Report):
    """Who slowed a recorded job down, and what changes would bring.

    Attributes:
        slowdown: mean recorded over mean ideal step.
        worst_workers_share, last_stage_share: of the lost time; None if nothing is lost.
        recorded_s, ideal_s: mean step as recorded without host gaps, and without stragglers.
        by_op_type, by_rank, by_stage, by_dp: slowdown that each alone causes.
        changes: what is changed -> step times; the first is the job as it is.
        doubts: why not to trust the prediction of the job as it is, one sentence each.
    """

    kind: ClassVar[str] = "what-if"
    picture: ClassVar[str] = "prism_jax.recorded.picture:draw_workers"

    info: Annotated[TraceFacts, INLINE]
    slowdown: Annotated[float, Key("S")]
    worst_workers_share: Annotated[float | None, Key("M_W")]
    last_stage_share: Annotated[float | None, Key("M_S")]
    recorded_s: float
    ideal_s: float
    by_op_type: Mapping[str, float]
    by_rank: Mapping[str, float]
    by_stage: Mapping[str, float]
    by_dp: Mapping[str, float]
    worst_ranks: tuple[int, ...]
    criticality: CriticalShares
    changes: Mapping[str, Quantiles]
    record: Annotated[RunRecord, INLINE]
    doubts: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        lines = [
            *headline(self.info),
            f"slowdown S = {self.slowdown:.5f}: without host gaps the mean step takes {format_s(self.recorded_s)}, "
            f"without stragglers {format_s(self.ideal_s)}",
            *_replayed(self),
            _blame(self),
            "",
            *_ranking("slowdown by op type", self.by_op_type, ""),
            *_ranking("slowdown by stage", self.by_stage, "stage "),
            *_ranking("slowdown by rank", self.by_rank, "rank "),
            "",
            "critical path of the recorded steps",
        ]
        shares = [(n, v) for n, v in self.criticality.by_op_type.items() if v >= SMALLEST_SHARE][:MOST]
        lines += [f"  {value:>6.1%}  {bar(value)} {name}" for name, value in shares]
        return lines + ["", *_changes(self.changes), *warnings(self.doubts), *notes(self.info)]


def _unreplayed(report: TracePredictionReport) -> list[str]:
    """A warning where not even work and gaps together give the recorded steps, and what it is about."""
    error = 0.0 if report.replay is None else report.replay.with_host_gaps.median_abs_error
    if error < FAR:
        return []
    wrong = (
        "what-if and --replicas; the figures above are of whole steps" if _of_whole_steps(report) else "these figures"
    )
    return [
        f"warning: replaying the recorded work and gaps misses the recorded steps by {error:.0%}: ops of one stream overlap, or "
        f"clocks disagree. Do not trust {wrong}."
    ]


def _of_whole_steps(report: TracePredictionReport) -> bool:
    """Whether drawn steps are recorded ones and not made of their parts."""
    return (
        report.asked == PredictedJobChange() and report.evidence is not None and not report.evidence.has_micro_batches
    )


def _asked(asked: PredictedJobChange) -> str:
    words = {"n_replica": "data-parallel replicas", "n_micro_batch": "micro-batches per replica"}
    wanted = {word: getattr(asked, name) for name, word in words.items()}
    parts = [f"{n:,} {word}" for word, n in wanted.items() if n]
    return f" with {' and '.join(parts)}" if parts else ""


WORDS = {
    "micro_batch": "micro-batch, shared by forward and backward on all stages",
    "replica": "step of a replica, shared by its compute",
    "step": "step, shared by all compute",
    "rank": "rank, persistent",
    "position": "position of the micro-batch in the step",
    "own": "single op",
}


def _evidence(evidence: EvidenceFacts) -> list[str]:
    lines = []
    shares = sorted(evidence.variance_shares.items(), key=lambda item: -item[1])
    unit = "micro_batch" if evidence.has_micro_batches else "replica"
    if shares:
        lines.append("compute-time variance by cause")
        lines += [
            f"  {share:>6.1%}  {bar(share)} {WORDS[unit if name == 'micro_batch' else name]}"
            for name, share in shares
            if share >= SMALLEST_SHARE
        ]
        lines += [f"          {text}" for text in _strata(evidence.strata, unit)]
        lines += _shape(evidence.shape, unit)
        lines.append(
            f"  evidence: p = {evidence.p_values['step']:.2g} for a step effect, {evidence.p_values['rank']:.2g} for ranks"
        )
    lines += _agreement(evidence.agreement)
    if evidence.observed_waits:
        lines.append(
            f"  {counted(len(evidence.observed_waits), 'wait')} inferred from the recording, e.g. {evidence.observed_waits[-1]}"
        )
    if evidence.unexplained_waits:
        lines.append(
            f"  {counted(evidence.unexplained_waits, 'gap')} of workers treated as waits for events that were not recorded"
        )
    return lines


def _shape(shape: ShapeFacts, unit: str) -> list[str]:
    if shape.chosen is None or not shape.held_out_log_density:
        return []
    scores = sorted(shape.held_out_log_density.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{name.replace('_', ' ')} {score:.3f}" for name, score in scores)
    chosen = "recorded pool" if shape.chosen == "pool" else shape.chosen.replace("_", " ")
    what = {"micro_batch": "micro-batch factor", "replica": "factor of a replica's step"}[unit]
    return [f"  {what}: {chosen} (held-out log density: {listed})"]


def _agreement(agreement: MomentMatch) -> list[str]:
    """What drawn steps were multiplied by; nothing where it is not seen in three digits."""
    if max(abs(agreement.mean - 1.0), abs(agreement.spread - 1.0)) < SMALLEST_SHARE:
        return []
    return [
        f"  adjusted to match the recorded steps: mean x {agreement.mean:.3f}, spread x {agreement.spread:.3f} "
        "(shared effects that the model does not contain)"
    ]


def _strata(strata: Mapping[str, float], unit: str) -> list[str]:
    words = {"replica": "the means of a replica's step", "step": "the means of a step"}
    independent = {"micro_batch": "micro-batches", "replica": "replicas"}[unit]
    return [
        f"variance of {words[name]}: {ratio:.2f} times that of independent {independent}"
        for name, ratio in strata.items()
        if abs(ratio - 1.0) > 0.05
    ]


def _check(report: TracePredictionReport, check: CheckFacts) -> list[str]:
    """How predictions fared on steps that were held out."""
    n_split, score = len(check.splits or (0,)), check.score
    over = f", mean of {n_split} splits" if n_split > 1 else ""
    measured, predicted = score.measured_s, score.predicted_s
    low, high = score.p95_interval_s
    covered = score.p95_covered
    once = f"{'contains' if covered else 'does not contain'} the measured p95"
    verdict = f"contains it in {covered:.0%} of splits" if n_split > 1 else once
    lines = [
        f"check: fitted on {report.n_train:,} steps{_fitted(report)}, {report.n_test:,} steps predicted{over}",
        f"  p50   measured {format_s(measured.p50)}, predicted {format_s(predicted.p50)}",
        f"  p95   measured {format_s(measured.p95)}, predicted {format_s(predicted.p95)} ({score.p95_error:+.2%}); "
        f"90% interval {format_s(low)} to {format_s(high)} {verdict}",
        f"  KS distance to the held-out steps {score.ks_distance:.3f}; fitted steps alone {score.ks_floor:.3f}",
    ]
    lines += [
        f"  baseline {way}: p95 {answer.p95_error:+.2%}, KS {answer.ks_distance:.3f}"
        for way, answer in score.naive.items()
    ]
    return lines


def _fitted(report: TracePredictionReport) -> str:
    return f" of {report.fit_replicas} replicas" if report.fit_replicas else ""


MOST = 8  # lines of a ranking


def _replayed(report: WhatIfReport) -> list[str]:
    """A warning where replay by the rules is far from what was recorded."""
    mean_s, job = report.info.step_s.mean, report.info.job
    if job is None or abs(report.recorded_s / mean_s - 1.0) < FAR:
        return []
    n_absent = job.shape.dp * job.shape.pp - job.n_recorded_workers
    why = "the rules of the schedule explain these steps poorly (`trace replay`)"
    if n_absent > 0:
        why = f"it includes the wait for {n_absent:,} workers that were not recorded"
    return [f"  the recorded mean is {format_s(mean_s)}: {why}, so treat these figures with care"]


def _blame(report: WhatIfReport) -> str:
    if report.worst_workers_share is None or report.last_stage_share is None:
        return "  nothing is lost to stragglers"
    ranks = report.worst_ranks
    named = ", ".join(map(str, ranks[:MOST])) + (", ..." if len(ranks) > MOST else "")
    who = f"worker (rank {named}) accounts" if len(ranks) == 1 else f"{len(ranks):,} workers (ranks {named}) account"
    return f"  the worst {who} for {report.worst_workers_share:.1%} of the loss, the last stage for {report.last_stage_share:.1%}"


def _ranking(title: str, values: Mapping[str, float], prefix: str) -> list[str]:
    shown = list(values.items())[:MOST]
    more = f", {len(values) - len(shown)} more" if len(values) > len(shown) else ""
    return [
        title,
        *(f"  {value:.4f}  {prefix}{name}" for name, value in shown),
        *([f"  ...{more[1:]}"] if more else []),
    ]


def _changes(changes: Mapping[str, Quantiles]) -> list[str]:
    (now, base), *others = changes.items()
    lines = [f"unrecorded steps {now}: p50 {format_s(base.p50)}, p95 {format_s(base.p95)}, p99 {format_s(base.p99)}"]
    for what, times in others:
        pairs = [(name, getattr(times, name), getattr(base, name)) for name in ("p50", "p95", "p99")]
        parts = ", ".join(f"{name} {format_s(time_s)} ({time_s / base_s - 1:+.1%})" for name, time_s, base_s in pairs)
        lines.append(f"  {what}: {parts}")
    return lines
