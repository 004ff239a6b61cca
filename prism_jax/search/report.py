"""Reports what a search over plans has found: the best plan, how sure that is, what it gains, the plans behind it; or by size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Note, Table, Tone, notes
from ..core.readable import (
    amount,
    counted,
    percent,
    prob,
    prob_from,
    time_to,
    uncertain_memory,
    value_with_error,
    with_error,
    within,
)
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord, then_or
from ..core.units import format_bytes, format_s
from .figures import CandidateFacts, GainEstimate, ScreenedPlans, SizeFacts


@dataclass(frozen=True)
class SearchedJob:
    """The job whose plan was searched."""

    name: str
    model: str
    cluster: str
    device: str
    n_devices: int
    hbm_bytes: float
    sample_unit: str


@dataclass(frozen=True)
class StudyReport(Report):
    """The best plans of a search, how sure that is, and what the best one gains.

    Attributes:
        top: best first.
        unlike: best first; the best of each combination of degrees, schedule, recomputation and sharding.
        front_memory: plans that no other beats in both the objective and memory.
        n_simulated: plans whose step was simulated; `n_raced`: plans scored on their tail.
        infeasible: reason -> number of plans.
        screened: for pictures; absent in reports of versions before 0.2.
    """

    kind: ClassVar[str] = "study"
    picture: ClassVar[str] = "prism_jax.search.picture:draw_study"

    job: SearchedJob
    objective: str
    objective_unit: str
    method: str
    best: CandidateFacts
    top: tuple[CandidateFacts, ...]
    unlike: tuple[CandidateFacts, ...]
    gain: GainEstimate | None
    front_memory: tuple[CandidateFacts, ...]
    n_plans: int
    n_feasible: int
    n_simulated: int
    n_raced: int
    infeasible: Mapping[str, int]
    elapsed_s: float
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    screened: Annotated[ScreenedPlans | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        return Card(
            f"{self.job.name}: best of {self.n_feasible:,} plans on {self.job.n_devices:,} x {self.job.device}",
            *_study_verdict(self),
            facts=_study_facts(self),
            evidence=f"{self.n_raced:,} plans compared on {self.objective}; gain on fresh draws, model error included",
            assumptions=("what the job file leaves open is alike for all plans",),
            next_step=then_or(self.record.command, "prism-jax predict {}", KEEP),
        )

    def blocks(self) -> Sequence[Block]:
        counts = f"{self.n_plans:,} plans, {self.n_feasible:,} feasible, {self.n_simulated:,} simulated"
        how = f"{format_s(self.elapsed_s)} ({self.method.replace('_', ' ')})"
        reasons = sorted(self.infeasible.items(), key=lambda item: -item[1])[:MOST_REASONS]
        return [
            Facts("Best plan", _best(self)),
            *_top(self),
            Note(f"{counts}, {self.n_raced:,} compared on {self.objective} in {how}."),
            Table("Not feasible", ("reason", "plans"), [(text, f"{n:,}") for text, n in reasons]),
            *notes(self.notes),
        ]


@dataclass(frozen=True)
class SizesReport(Report):
    """Best plan of every cluster size.

    Attributes:
        front: numbers of devices that no other size beats in time, devices, energy and cost.
    """

    kind: ClassVar[str] = "sizes"
    picture: ClassVar[str] = "prism_jax.search.picture:draw_sizes"

    job: SearchedJob
    objective: str
    objective_unit: str
    sizes: tuple[SizeFacts, ...]
    front: tuple[int, ...]
    record: Annotated[RunRecord, INLINE]

    def card(self) -> Card:
        fastest = min(self.sizes, key=lambda size: size.value_s)
        least = min(self.sizes, key=self.gpu_s)
        file = self.record.inputs.get("job") or self.job.name
        same = ", with the least GPU time per step" if least == fastest else f"; least GPU time on {least.n_devices:,}"
        return Card(
            f"{self.job.name}: {self.job.model} on {self.job.device}, best plan by {self.objective}",
            f"Fastest on {fastest.n_devices:,} GPUs{same}.",
            facts={f"{size.n_devices:,} GPUs": self._words(size) for size in (fastest, least)},
            evidence=f"the best plan of each of {len(self.sizes)} sizes, simulated",
            assumptions=("what the job file leaves open is alike at all sizes",),
            next_step=f"prism-jax predict {file} --set cluster.n_devices={least.n_devices}",
        )

    def _words(self, size: SizeFacts) -> str:
        return f"{self.objective} {self._value(size)}, {self.gpu_s(size):,.4g} GPU-s; {size.plan.degrees}"

    def blocks(self) -> Sequence[Block]:
        columns = {
            "GPUs": lambda size: f"{size.n_devices:,}{'*' * (size.n_devices in self.front)}",
            self.objective: self._value,
            "GPU-s per step": lambda size: f"{self.gpu_s(size):,.4g}",
            "energy kWh": lambda size: f"{size.energy_j / 3.6e6:.4g}",
            "cost": lambda size: amount(size.cost) if size.cost else "",
            "memory": lambda size: format_bytes(size.memory_bytes),
            "plan": lambda size: size.plan.words,
        }
        cost = "; cost in the currency of the price" if any(size.cost for size in self.sizes) else ""
        last = f"* on the Pareto front of time, GPUs, energy and cost, which are of the median step{cost}"
        return [Table.of(f"{self.job.name}: best plan by {self.objective}", self.sizes, columns), Note(last)]

    def _value(self, size: SizeFacts) -> str:
        if size.value_error_s is None:  # of an older version
            return format_s(size.value_s) if self.objective_unit == "s" else f"{size.value_s:.4g} {self.objective_unit}"
        return value_with_error(size.value_s, size.value_error_s, self.objective_unit)

    def gpu_s(self, size: SizeFacts) -> float:
        """GPU-seconds of a step: of the objective where it is a time, else of the median step."""
        return size.n_devices * (size.value_s if self.objective_unit == "s" else size.p50_s)


@dataclass(frozen=True)
class TunedNumber:
    """A number that was tuned: the job's own value and the one that was found, both in `unit`."""

    field: str
    label: str
    unit: str
    before: float
    after: float

    @property
    def name(self) -> str:
        """Field and label."""
        return f"{self.field} {self.label}"


@dataclass(frozen=True)
class TuneReport(Report):
    """Values of continuous fields that make a quantile of the step time small, and what they gain on fresh draws.

    Attributes:
        job: its name.
        p: probability of the quantile.
        numbers: rounded to what can be run.
        base_s, best_s: the quantile before and after.
        gain: 1 - after / before; gain_interval: 90%, by Monte Carlo error alone.
    """

    kind: ClassVar[str] = "tune"
    picture: ClassVar[str] = "prism_jax.search.picture:draw_tuned"

    job: str
    p: float
    numbers: tuple[TunedNumber, ...]
    base_s: float
    best_s: float
    gain: float
    gain_interval: tuple[float, float]
    elapsed_s: float
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    def card(self) -> Card:
        low, high = self.gain_interval
        name, half_s = f"p{100 * self.p:g}", self.base_s * (high - low) / 2.0
        before, after = (time_to(one, max(half_s, self.base_s / 1e4)) for one in (self.base_s, self.best_s))
        found = f"{name} falls by {self.gain:.1%}" if low > 0.0 else f"No gain in {name} that these draws show"
        fields = list(dict.fromkeys(one.field for one in self.numbers))
        return Card(
            f"{self.job}: {', '.join(fields)} tuned for {name}",
            f"{found} {within(self.gain_interval, '{:.1%}'.format)}.",
            "good" if low > 0.0 else "unsure",
            facts={
                name: f"{before} before, {after} after",
                **{
                    one.name: f"{one.before:,.6g} -> {one.after:,.6g} {one.unit}" for one in self.numbers[:MOST_NUMBERS]
                },
            },
            evidence="fresh draws; Monte Carlo error alone",
            assumptions=self.notes[:1],
            next_step="state these values in the job",
        )

    def blocks(self) -> Sequence[Block]:
        return [Table.of("Values", self.numbers, TUNED), *notes(self.notes)]


TUNED: dict[str, Callable[[TunedNumber], str]] = {
    "": lambda one: one.name,
    "before": lambda one: f"{one.before:,.6g}",
    "after": lambda one: f"{one.after:,.6g}",
    "unit": lambda one: one.unit,
}
KEEP = "-o best.yaml writes the job with this plan"
MOST_NUMBERS = 4  # on the first screen
MOST_REASONS = 4


def _study_verdict(report: StudyReport) -> tuple[str, Tone]:
    """Verdict: gain of the best plan over the job's own."""
    gain, best = report.gain, report.best
    if not best.changes:
        return f"The job's own plan has the least {report.objective} of all.", "good"
    if gain is None:
        return "The job's own plan cannot run; this one can.", "plain"
    interval = within(gain.model_interval, percent)
    if gain.gain <= 0.0:
        longer = f"the least there is {percent(-gain.gain)} above it (gain {percent(gain.gain)}, {interval[1:-1]})"
        return f"No plan of the space has a lower {report.objective} than the job's own: {longer}.", "plain"
    below = f"{percent(gain.gain)} below that of the job's own {interval}"
    return f"A plan whose {report.objective} is {below}.", "good" if gain.model_interval[0] > 0.0 else "unsure"


def _study_facts(report: StudyReport) -> dict[str, str]:
    best, tied = report.best, sum(one.tied for one in report.unlike) - 1
    value = value_with_error(best.value_s, best.value_error_s, report.objective_unit)
    others = f"; {counted(tied, 'other kind')} of plan within the error" if tied > 0 else ""
    memory = f"{format_bytes(best.memory_bytes, 3)} of {format_bytes(report.job.hbm_bytes, 3)}"
    rate = f"{best.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s/GPU, MFU {percent(best.mfu)}"
    return {
        "plan": best.plan.in_short,
        report.objective: f"{value}; {rate}",
        "memory": f"{memory}, does not fit with probability {prob_from(best.not_fit_prob)}",
        "best": f"of all finalists with probability {prob(best.prob_best)}{others}",
    }


def _best(report: StudyReport) -> dict[str, str]:
    best, smallest_s = report.best, _smallest_s(report)
    times = (f"{name} {time_to(getattr(best, f'{name}_s'), smallest_s)}" for name in ("p50", "p95", "p99"))
    memory = f"{format_bytes(best.memory_bytes)} of {format_bytes(report.job.hbm_bytes)} per device"
    rate = f"{best.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU at the median"
    return {
        "plan": best.plan.words,
        "step time": f"{', '.join(times)}; without variability {time_to(best.step_s, smallest_s)}",
        report.objective: value_with_error(best.value_s, best.value_error_s, report.objective_unit),
        "memory": f"{memory}: {uncertain_memory(best.memory_interval_bytes, best.not_fit_prob)}",
        "speed": f"MFU {best.mfu:.1%}, {rate}",
        "P(best)": f"{prob(best.prob_best)} of the finalists",
        "to change": " ".join(f"--set {change}" for change in best.changes) or "nothing",
        **(_gain(report, report.gain) if report.gain is not None and best.changes else {}),
    }


def _smallest_s(report: StudyReport) -> float:
    """Seconds that the digits of quantiles go down to."""
    return max(report.best.p99_s - report.best.p50_s, report.best.value_error_s) / 30


def _gain(report: StudyReport, gain: GainEstimate) -> dict[str, str]:
    unit, smallest_s = report.objective_unit, _smallest_s(report)
    ends = (gain.base_s, gain.best_s)
    before, after = (time_to(one, smallest_s) if unit == "s" else f"{one:.4g} {unit}" for one in ends)
    draws = f"{_range(gain.gain_interval)} by Monte Carlo error alone, on fresh draws that the search did not use"
    interval = f"90% interval {_range(gain.model_interval)} with the error of the cost model, {draws}"
    by_fit = gain.posterior_interval
    return {
        "gain": f"{gain.gain:.2%} of {report.objective}, {before} -> {after} ({interval})",
        "gain by the fit": "" if by_fit is None else f"{_range(by_fit)} by the uncertainty of the fit",
    }


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2%} to {interval[1]:.2%}"


def _top(report: StudyReport) -> list[Block]:
    """The best plan of each kind."""
    top, unit = report.unlike, report.objective_unit
    columns = {
        "": lambda ranked: f"{ranked[0]}{'=' * (ranked[1].tied and ranked[0] > 1)}",
        report.objective: lambda ranked: _value(ranked[1], unit),
        "behind": lambda ranked: f"+{ranked[1].behind_s / top[0].value_s:.2%}" if ranked[0] > 1 else "",
        "P(best)": lambda ranked: prob(ranked[1].prob_best),
        "MFU": lambda ranked: f"{ranked[1].mfu:.1%}",
        f"{report.job.sample_unit}/s/GPU": lambda ranked: f"{ranked[1].tokens_per_s_per_gpu:,.0f}",
        "memory": lambda ranked: format_bytes(ranked[1].memory_bytes),
        "plan": lambda ranked: ranked[1].plan.words,
    }
    title = "Best plan of each combination of degrees, schedule, recomputation and sharding"
    tied = sum(candidate.tied for candidate in top) > 1
    legend = "= not distinguishable from the best (2 standard errors)" if tied else ""
    return [Table.of(title, enumerate(top, start=1), columns), Note(legend)]


def _value(candidate: CandidateFacts, unit: str) -> str:
    value, error = candidate.value_s, candidate.value_error_s
    return time_to(value, error or value / 1e3) if unit == "s" else f"{with_error(value, error)[0]} {unit}"
