"""Reports predictions from recorded traces: steps not recorded, who slowed the job down, what a change would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.arrays import Floats
from ..core.page import Bar, Bars, Block, Card, Facts, Note, Table
from ..core.readable import counted, percent, some, time_to, time_with_error, times_to
from ..core.report import INLINE, WHERE_KNOWN, Key, Report, RunRecord
from ..core.units import format_s
from .prediction import MomentMatch, PredictedCurve, TracePrediction, predicted_curve
from .report import (
    FAR,
    QUANTILES,
    SMALLEST_SHARE,
    CriticalShares,
    HeldOutScore,
    Quantiles,
    ReplayErrors,
    SplitScore,
    TraceFacts,
    note_blocks,
    recorded_words,
    recording_blocks,
    recording_title,
)


@dataclass(frozen=True)
class PredictedJobChange:
    """The job that is predicted, where it is not the recorded one."""

    n_replica: int | None = None
    n_micro_batch: int | None = None

    def described(self) -> str:
        """Description such as "16 replicas, 12 micro-batches"; empty for the recorded job."""
        counts = {"replica": self.n_replica, "micro-batch": self.n_micro_batch}
        return ", ".join(counted(n, name) for name, n in counts.items() if n is not None)


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
    """Shared factors that were found, and the waits that no rule states.

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
class PredictedCurves:
    """Curves in the picture of a prediction: all recorded steps, and the check; absent where nothing was held out."""

    fitted: PredictedCurve
    held_out: Annotated[PredictedCurve | None, WHERE_KNOWN] = None

    @classmethod
    def of(
        cls, prediction: TracePrediction, recorded_s: Floats, held_out: tuple[TracePrediction, Floats] | None
    ) -> PredictedCurves:
        """The curves of a prediction from all recorded steps and, if given, of one from some steps and the others.

        The band of the first is that of the long-run distribution, of the second that of so many steps as were held out, which
        scatter.
        """
        fitted = predicted_curve(prediction, recorded_s)
        return cls(fitted, None if held_out is None else predicted_curve(*held_out, n_band=len(held_out[1])))


@dataclass(frozen=True)
class TracePredictionReport(Report):
    """Distribution of the steps that were not recorded, and how predictions fared on steps held out.

    Attributes:
        fit_replicas: replicas that the check fits on; None for all.
        n_train, n_test: steps that the check fits on and predicts; n_test is 0 without a check.
        doubts: why not to trust the prediction, one sentence each.
        evidence, replay: of a trace.
        check: absent without a check.
        curves: for pictures; absent in reports of versions before 0.2.
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
    curves: Annotated[PredictedCurves | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        steps, doubts = self.steps_s, self.doubts + _unreplayed(self)
        over = percent(steps.p95 / steps.p50 - 1.0)
        says, quantiles = f"A step takes {_time(steps, 'p50')}; 1 in 20 at least {over} more.", tuple(QUANTILES)
        if self.info.n_steps == 1 and steps.p95 == steps.p50:
            says = f"The recorded step took {format_s(steps.p50)}; a single one does not tell how steps vary."
            quantiles = ()
        return Card(
            f"{recording_title(self.info)}: unrecorded steps{_asked(self.asked)}",
            says,
            "unsure" if doubts else "plain",
            facts={
                **{name: f"{_time(steps, name)} ({steps.level:.0%}: {_interval(steps, name)})" for name in quantiles},
                "check": "" if self.check is None else _covered(self, self.check),
                "warning": doubts[0].partition(":")[0].partition(", so ")[0] if doubts else "",
            },
            evidence=recorded_words(self.info),
            assumptions=("steps to come vary as the recorded ones do, on the same machines",),
            next_step=_next(self.info),
        )

    def blocks(self) -> Sequence[Block]:
        steps, asked = self.steps_s, _asked(self.asked)
        columns = {
            "": lambda name: name,
            "unrecorded steps": lambda name: time_with_error(getattr(steps, name), getattr(steps.mc_error, name)),
            f"{steps.level:.0%} interval, from {counted(self.info.n_steps, 'recorded step')}": lambda name: _interval(
                steps, name
            ),
        }
        return (
            Table.of(f"Unrecorded steps{asked} (± Monte Carlo error)", QUANTILES, columns),
            Note(OF_WHOLE_STEPS if _of_whole_steps(self) else ""),
            *([] if self.check is None else _check(self, self.check)),
            *([] if self.evidence is None else _evidence(self.evidence)),
            *recording_blocks(self.info),
            *note_blocks(self.info.notes, self.doubts + _unreplayed(self)),
        )


@dataclass(frozen=True)
class WhatIfReport(Report):
    """Stragglers of a recorded job, and what changes would bring.

    Attributes:
        slowdown: mean recorded over mean ideal step.
        worst_workers_share, last_stage_share: of the lost time; None if nothing is lost.
        recorded_s, ideal_s: mean step as recorded without host gaps, and without stragglers.
        by_op_type, by_rank, by_stage, by_dp: slowdown that each alone causes.
        changes: what is changed -> step times; the first is the job as it is.
        doubts: why not to trust the prediction of the job as it is, one sentence each.
        ranks: [replica, stage] global rank of every worker, for pictures; absent in reports of versions before 0.2.
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
    ranks: Annotated[tuple[tuple[int, ...], ...] | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        smallest = max(0.1 * abs(self.recorded_s - self.ideal_s), 1e-4 * self.ideal_s)
        recorded, ideal = (time_to(one, smallest) for one in (self.recorded_s, self.ideal_s))
        slowdown, care = f"(slowdown S = {self.slowdown:.3f})", _replayed(self)
        says, blame = (
            f"A step is {percent(self.slowdown - 1.0)} longer than without stragglers {slowdown}.",
            _blame(self),
        )
        unlike = self.slowdown < 1.0 - UNLIKE
        if unlike:
            says = f"Stragglers cannot be told: the ranks do not do the same work {slowdown}."
            blame = "unknown: operations of one kind differ in what they do"
        elif self.worst_workers_share is None:
            says = f"Nothing is lost to stragglers {slowdown}."
        return Card(
            recording_title(self.info),
            says,
            "unsure" if care or unlike else "plain",
            facts={
                "mean step": f"{recorded} with stragglers, {ideal} without",
                "blame": blame,
                "best change": _best(self.changes),
                "warning": care,
            },
            evidence=f"{recorded_words(self.info)}, replayed without gaps of the CPU",
            next_step="--replace-rank, --swap: other changes",
        )

    def blocks(self) -> Sequence[Block]:
        shares = [(name, v) for name, v in self.criticality.by_op_type.items() if v >= SMALLEST_SHARE][:MOST]
        care = _replayed(self)
        return (
            _changes(self.changes),
            _ranking("Slowdown by rank", self.by_rank, "rank "),
            _ranking("Slowdown by stage", self.by_stage, "stage "),
            _ranking("Slowdown by operation", self.by_op_type, ""),
            Bars("Critical path of the recorded steps", [Bar(name, percent(v), v) for name, v in shares]),
            *recording_blocks(self.info),
            *note_blocks(self.info.notes, (care, *self.doubts) if care else self.doubts),
        )


OF_WHOLE_STEPS = "whole recorded steps are redrawn, as nothing within a step can be recombined"


def _time(steps: PredictedSteps, name: str) -> str:
    """Time with the digits that its interval allows."""
    low, high = getattr(steps.interval, name)
    return time_to(getattr(steps, name), max(0.1 * (high - low), getattr(steps.mc_error, name)))


def _interval(steps: PredictedSteps, name: str) -> str:
    low, high = getattr(steps.interval, name)
    return times_to((low, high), max(0.1 * (high - low), 1e-4 * low))


def _covered(report: TracePredictionReport, check: CheckFacts) -> str:
    score, n_split = check.score, len(check.splits or (0,))
    where = f"in its interval in {score.p95_covered:.0%} of {n_split} splits"
    if n_split == 1:
        where = "in its interval" if score.p95_covered else "OUTSIDE its interval"
    steps = counted(report.n_test, "held-out step")
    return f"{steps}: p95 {percent(score.p95_error, sign=True)} off, {where}"


def _next(info: TraceFacts) -> str:
    return "prism-jax watch: slow phases" if info.job is None else "prism-jax trace what-if: who slows it down"


def _unreplayed(report: TracePredictionReport) -> tuple[str, ...]:
    """Why not to trust figures where not even work and gaps together give the recorded steps, and which."""
    error = 0.0 if report.replay is None else report.replay.with_host_gaps.median_abs_error
    if error < FAR:
        return ()
    whole = "what-if and --replicas; the figures above are of whole steps"
    wrong = whole if _of_whole_steps(report) else "these figures"
    return (
        f"replaying the recorded work and gaps misses the recorded steps by {error:.0%}: ops of one stream overlap, or "
        f"clocks disagree. Do not trust {wrong}.",
    )


def _of_whole_steps(report: TracePredictionReport) -> bool:
    """Whether drawn steps are recorded ones and not made of their parts."""
    found = report.evidence
    return report.asked == PredictedJobChange() and found is not None and not found.has_micro_batches


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


def _evidence(evidence: EvidenceFacts) -> list[Block]:
    """Causes of the variance, and the waits and gaps that no rule states."""
    shares = sorted(evidence.variance_shares.items(), key=lambda item: -item[1])
    unit = "micro_batch" if evidence.has_micro_batches else "replica"
    n_wait, n_gap = len(evidence.observed_waits), evidence.unexplained_waits
    waits = (
        f"{counted(n_wait, 'wait')} inferred from the recording, e.g. {evidence.observed_waits[-1]}" if n_wait else ""
    )
    gaps = f"{counted(n_gap, 'gap')} of workers treated as waits for events that were not recorded" if n_gap else ""
    bars = [
        Bar(WORDS[unit if name == "micro_batch" else name], percent(share), share)
        for name, share in shares
        if share >= SMALLEST_SHARE
    ]
    facts = {
        **(_effects(evidence, unit) if shares else {}),
        "adjusted": _agreement(evidence.agreement),
        "waits": waits,
        "gaps": gaps,
    }
    return [Bars("Variance of compute times by cause", bars), Facts("What varies, and what waits for what", facts)]


def _effects(evidence: EvidenceFacts, unit: str) -> dict[str, str]:
    """Shared effects: how much more means vary than independent parts would make them, the family, the tests."""
    step, rank = (f"{evidence.p_values[name]:.2g}" for name in ("step", "rank"))
    p_values = f"{step} for an effect of the step, {rank} for ranks"
    return {**_strata(evidence.strata, unit), **_shape(evidence.shape, unit), "p-values": p_values}


def _shape(shape: ShapeFacts, unit: str) -> dict[str, str]:
    if shape.chosen is None or not shape.held_out_log_density:
        return {}
    scores = sorted(shape.held_out_log_density.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{name.replace('_', ' ')} {score:.3f}" for name, score in scores)
    chosen = "recorded pool" if shape.chosen == "pool" else shape.chosen.replace("_", " ")
    what = {"micro_batch": "micro-batch factor", "replica": "factor of a replica's step"}[unit]
    return {what: f"{chosen} (held-out log density: {listed})"}


def _agreement(agreement: MomentMatch) -> str:
    """Factors of drawn steps, in words; none where they are not seen in three digits."""
    if max(abs(agreement.mean - 1.0), abs(agreement.spread - 1.0)) < SMALLEST_SHARE:
        return ""
    scaled = f"mean x {agreement.mean:.3f}, spread x {agreement.spread:.3f}, to match the recorded steps"
    return f"{scaled} (shared effects that the model does not contain)"


def _strata(strata: Mapping[str, float], unit: str) -> dict[str, str]:
    words = {"replica": "means of a replica's step", "step": "means of a step"}
    independent = {"micro_batch": "micro-batches", "replica": "replicas"}[unit]
    return {
        words[name]: f"vary {ratio:.2f} times as much (variance) as those of independent {independent}"
        for name, ratio in strata.items()
        if abs(ratio - 1.0) > 0.05
    }


def _check(report: TracePredictionReport, check: CheckFacts) -> list[Block]:
    """Scores of predictions on steps that were held out."""
    n_split, score = len(check.splits or (0,)), check.score
    over = f", mean of {n_split} splits" if n_split > 1 else ""
    fitted = f" of {counted(report.fit_replicas, 'replica')}" if report.fit_replicas else ""
    n_train, n_test = counted(report.n_train, "step"), counted(report.n_test, "step")
    errors = {"p50": score.p50_error, "p95": score.p95_error}
    columns = {
        "": lambda name: name,
        "measured": lambda name: format_s(getattr(score.measured_s, name)),
        "predicted": lambda name: format_s(getattr(score.predicted_s, name)),
        "error": lambda name: f"{errors[name]:+.2%}",
        "90% interval": lambda name: " to ".join(map(format_s, score.p95_interval_s)) if name == "p95" else "",
    }
    ways = [("prediction", score), *score.naive.items()]
    distances = [(way, f"{one.p95_error:+.2%}", f"{one.ks_distance:.3f}") for way, one in ways]
    floor = ("fitted steps as they are", "", f"{score.ks_floor:.3f}")
    return [
        Table.of(f"Check: fitted on {n_train}{fitted}, {n_test} predicted{over}", errors, columns),
        Table("Distance to the held-out steps", ("", "p95 error", "KS distance"), [*distances, floor]),
        Note(_covered(report, check)),
    ]


MOST = 8  # lines of a ranking


def _replayed(report: WhatIfReport) -> str:
    """Why to take care where replay by the rules is far from what was recorded; empty where it is not."""
    mean_s, job = report.info.step_s.mean, report.info.job
    if job is None or abs(report.recorded_s / mean_s - 1.0) < FAR:
        return ""
    n_absent = job.shape.dp * job.shape.pp - job.n_recorded_workers
    why = "the rules of the schedule explain these steps poorly (`trace replay`)"
    if n_absent > 0:
        why = f"it includes the wait for {n_absent:,} workers that were not recorded"
    return f"the recorded mean is {format_s(mean_s)}: {why}, so treat these figures with care"


UNLIKE = 0.02  # a step without stragglers that is longer than the recorded one by more is none


def _blame(report: WhatIfReport) -> str:
    if report.worst_workers_share is None or report.last_stage_share is None:
        return "nothing is lost to stragglers"
    n, named = len(report.worst_ranks), some([str(rank) for rank in report.worst_ranks], MOST)
    who = f"worker (rank {named})" if n == 1 else f"{n:,} workers (ranks {named})"
    worst, last = percent(report.worst_workers_share), percent(report.last_stage_share)
    return f"worst {who} {worst} of the loss, last stage {last}"


def _ranking(title: str, values: Mapping[str, float], prefix: str) -> Bars:
    """The largest slowdowns; bars are what each adds to the step, over the largest."""
    shown = list(values.items())[:MOST]
    most = max([value - 1.0 for _, value in shown], default=0.0) or 1.0
    rest = f" (the first {MOST} of {len(values):,})" if len(values) > MOST else ""
    return Bars(f"{title}{rest}", [Bar(f"{prefix}{name}", f"{v:.4f}", (v - 1.0) / most) for name, v in shown])


def _best(changes: Mapping[str, Quantiles]) -> str:
    """The change that lowers the p95 most, or that none does."""
    base, *others = changes.items()
    what, best = min(others, key=lambda item: item[1].p95, default=base)
    gain = best.p95 / base[1].p95 - 1.0
    return f"{what}: p95 {percent(gain, sign=True)}" if gain < 0.0 else "none of those tried lowers the p95"


def _changes(changes: Mapping[str, Quantiles]) -> Table:
    """Quantiles after every change, and how far they are from those of the job as it is, the first."""
    (_, base), *_ = changes.items()

    def over(times: Quantiles, name: str) -> str:
        time_s = getattr(times, name)
        return format_s(time_s) + ("" if times is base else f" ({time_s / getattr(base, name) - 1:+.1%})")

    rows = [(what, *(over(times, name) for name in QUANTILES)) for what, times in changes.items()]
    return Table("Unrecorded steps after a change", ("change", *QUANTILES), rows)
