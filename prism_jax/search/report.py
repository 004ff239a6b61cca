"""Reports what a search over plans has found: the best plan, how sure that is, what it gains, the plans behind it; or by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Note, Table, Tone, more
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
from ..core.text_table import amount, percent, prob, prob_from, time_to, uncertain_memory, value_with_error, with_error
from ..core.units import format_bytes, format_s
from .figures import CandidateFacts, GainEstimate, ScreenedPlans, SearchedPlan, SizeFacts


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
        verdict, tone = _study_verdict(self)
        return Card(
            title=f"{self.job.name}: best of {self.n_feasible:,} plans on {self.job.n_devices:,} x {self.job.device}",
            verdict=verdict,
            tone=tone,
            facts=_study_facts(self),
            evidence=f"{self.n_raced:,} plans compared on {self.objective}; gain on fresh draws, model error included",
            assumptions=("what the job file leaves open is alike for all plans",),
            next_step=f"-o best.yaml writes the job with this plan; {more(self.notes)}",
        )

    def blocks(self) -> Sequence[Block]:
        counts = (
            f"{self.n_plans:,} plans, {self.n_feasible:,} feasible, {self.n_simulated:,} simulated, {self.n_raced:,}"
        )
        reasons = sorted(self.infeasible.items(), key=lambda item: -item[1])[:MOST_REASONS]
        return [
            Facts("Best plan", _best(self)),
            *_top(self),
            Note(
                f"{counts} compared on {self.objective} in {format_s(self.elapsed_s)} ({self.method.replace('_', ' ')})."
            ),
            *(
                [Table("Not feasible", ("reason", "plans"), [(text, f"{n:,}") for text, n in reasons])]
                if reasons
                else []
            ),
            *(Note(f"note: {note}") for note in self.notes),
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
        shown = {size.n_devices: size for size in (fastest, least)}
        same = ", with the least GPU time per step" if len(shown) == 1 else f"; least GPU time on {least.n_devices:,}"
        return Card(
            title=f"{self.job.name}: {self.job.model} on {self.job.device}, best plan by {self.objective}",
            verdict=f"Fastest on {fastest.n_devices:,} GPUs{same}.",
            tone="plain",
            facts={
                f"{n:,} GPUs": f"{self.objective} {self._value(size)}, {self.gpu_s(size):,.4g} GPU-s; {degrees_words(size.plan)}"
                for n, size in shown.items()
            },
            evidence=f"the best plan of each of {len(self.sizes)} sizes, simulated",
            assumptions=("what the job file leaves open is alike at all sizes",),
            next_step=f"prism-jax predict {file} --set cluster.n_devices={least.n_devices}; --details",
        )

    def blocks(self) -> Sequence[Block]:
        head = ("GPUs", self.objective, "GPU-s per step", "energy kWh", "cost", "memory", "plan")
        rows = [
            (
                f"{size.n_devices:,}{'*' * (size.n_devices in self.front)}",
                self._value(size),
                f"{self.gpu_s(size):,.4g}",
                f"{size.energy_j / 3.6e6:.4g}",
                amount(size.cost) if size.cost else "",
                format_bytes(size.memory_bytes),
                plan_words(size.plan),
            )
            for size in self.sizes
        ]
        cost = "; cost in the currency of the price" if any(size.cost for size in self.sizes) else ""
        last = f"* on the Pareto front of time, GPUs, energy and cost, which are of the median step{cost}"
        return [Table(f"{self.job.name}: best plan by {self.objective}", head, rows), Note(last)]

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
        smallest_s = max(half_s, self.base_s / 1e4)
        interval = f"(90%: {low:.1%} to {high:.1%})"
        found = f"{name} falls by {self.gain:.1%}" if low > 0.0 else f"No gain in {name} that these draws show"
        fields = list(dict.fromkeys(one.field for one in self.numbers))
        return Card(
            title=f"{self.job}: {', '.join(fields)} tuned for {name}",
            verdict=f"{found} {interval}.",
            tone="good" if low > 0.0 else "unsure",
            facts={
                name: f"{time_to(self.base_s, smallest_s)} before, {time_to(self.best_s, smallest_s)} after",
                **{
                    f"{one.field} {one.label}": f"{one.before:,.6g} -> {one.after:,.6g} {one.unit}"
                    for one in self.numbers[:MOST_NUMBERS]
                },
            },
            evidence="fresh draws; Monte Carlo error alone",
            assumptions=self.notes[:1],
            next_step=f"state these values in the job; {more(self.notes)}",
        )

    def blocks(self) -> Sequence[Block]:
        rows = [(f"{n.field} {n.label}", f"{n.before:,.6g}", f"{n.after:,.6g}", n.unit) for n in self.numbers]
        return [Table("Values", ("", "before", "after", "unit"), rows), *(Note(f"note: {note}") for note in self.notes)]


MOST_NUMBERS = 4  # on the first screen
MOST_REASONS = 4


def degrees_words(plan: SearchedPlan) -> str:
    """Degrees and pipeline of a plan: "tp 8 x pp 4 x dp 16, 1f1b"."""
    sizes = {"tp": plan.tp, "cp": plan.cp, "pp": plan.pp, "dp": plan.dp}
    degrees = " x ".join(f"{axis} {n}" for axis, n in sizes.items() if n > 1) or "one device"
    pipeline = f", {plan.schedule}" if plan.pp > 1 else ""
    chunks = f" v {plan.virtual_stages}" if plan.virtual_stages > 1 else ""
    return degrees + (f", ep {plan.ep}" if plan.ep > 1 else "") + pipeline + chunks


def plan_words(plan: SearchedPlan) -> str:
    """A plan in one line."""
    return ", ".join([
        degrees_words(plan),
        f"micro-batch {plan.micro_batch} ({plan.n_micro_batch} of them)",
        f"recompute {plan.recompute}",
        _sharding(plan),
        *(["sequence parallel"] if plan.sequence_parallel else []),
        f"overlap {_overlap(plan)}",
    ])  # fmt: skip


def _study_verdict(report: StudyReport) -> tuple[str, Tone]:
    """Verdict: gain of the best plan over the job's own."""
    gain, best = report.gain, report.best
    if not best.changes:
        return f"The job's own plan has the least {report.objective} of all.", "good"
    if gain is None:
        return "The job's own plan cannot run; this one can.", "plain"
    low, high = gain.model_interval
    interval = f"(90%: {percent(low)} to {percent(high)})"
    return (
        f"A plan whose {report.objective} is {percent(gain.gain)} below that of the job's own {interval}.",
        "good" if low > 0.0 else "unsure",
    )


def _study_facts(report: StudyReport) -> dict[str, str]:
    best, tied = report.best, sum(one.tied for one in report.unlike) - 1
    value = value_with_error(best.value_s, best.value_error_s, report.objective_unit)
    others = f"; {tied} other kind{'s' * (tied > 1)} of plan within the error" if tied > 0 else ""
    memory = f"{format_bytes(best.memory_bytes, 3)} of {format_bytes(report.job.hbm_bytes, 3)}"
    return {
        "plan": f"{degrees_words(best.plan)}, micro-batch {best.plan.micro_batch}",
        report.objective: f"{value}; {best.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s/GPU, MFU {percent(best.mfu)}",
        "memory": f"{memory}, does not fit with probability {prob_from(best.not_fit_prob)}",
        "best": f"of all finalists with probability {prob(best.prob_best)}{others}",
    }


def _best(report: StudyReport) -> dict[str, str]:
    best, gain = report.best, report.gain
    smallest_s = max(best.p99_s - best.p50_s, best.value_error_s) / 30
    times = (f"{name} {time_to(getattr(best, f'{name}_s'), smallest_s)}" for name in ("p50", "p95", "p99"))
    facts = {
        "plan": plan_words(best.plan),
        "step time": f"{', '.join(times)}; without variability {time_to(best.step_s, smallest_s)}",
        report.objective: value_with_error(best.value_s, best.value_error_s, report.objective_unit),
        "memory": f"{format_bytes(best.memory_bytes)} of {format_bytes(report.job.hbm_bytes)} per device: "
        f"{uncertain_memory(best.memory_interval_bytes, best.not_fit_prob)}",
        "speed": f"MFU {best.mfu:.1%}, {best.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU at the median",
        "P(best)": f"{prob(best.prob_best)} of the finalists",
        "to change": " ".join(f"--set {change}" for change in best.changes) or "nothing",
    }
    if gain is not None and best.changes:
        is_time, unit = report.objective_unit == "s", report.objective_unit
        before, after = (time_to(x, smallest_s) if is_time else f"{x:.4g} {unit}" for x in (gain.base_s, gain.best_s))
        draws = f"{_range(gain.gain_interval)} by Monte Carlo error alone, on fresh draws that the search did not use"
        interval = f"90% interval {_range(gain.model_interval)} with the error of the cost model, {draws}"
        facts["gain"] = f"{gain.gain:.2%} of {report.objective}, {before} -> {after} ({interval})"
        if gain.posterior_interval is not None:
            facts["gain by the fit"] = f"{_range(gain.posterior_interval)} by the uncertainty of the fit"
    return facts


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2%} to {interval[1]:.2%}"


def _top(report: StudyReport) -> list[Block]:
    """The best plan of each kind."""
    top = report.unlike
    head = ("", report.objective, "behind", "P(best)", "MFU", f"{report.job.sample_unit}/s/GPU", "memory", "plan")
    rows = [_row(number, candidate, top[0], report.objective_unit) for number, candidate in enumerate(top, start=1)]
    tied = sum(candidate.tied for candidate in top) > 1
    table = Table("Best plan of each combination of degrees, schedule, recomputation and sharding", head, rows)
    return [table, *([Note("= not distinguishable from the best (2 standard errors)")] if tied else [])]


def _row(number: int, candidate: CandidateFacts, best: CandidateFacts, unit: str) -> tuple[str, ...]:
    value, error = candidate.value_s, candidate.value_error_s
    behind = candidate.behind_s / best.value_s
    tie = "=" if candidate.tied and number > 1 else ""
    return (
        f"{number}{tie}",
        time_to(value, error or value / 1e3) if unit == "s" else f"{with_error(value, error)[0]} {unit}",
        f"+{behind:.2%}" if number > 1 else "",
        prob(candidate.prob_best),
        f"{candidate.mfu:.1%}",
        f"{candidate.tokens_per_s_per_gpu:,.0f}",
        format_bytes(candidate.memory_bytes),
        plan_words(candidate.plan),
    )


def _sharding(plan: SearchedPlan) -> str:
    if plan.sharding == "none":
        return f"ZeRO-{plan.zero_stage}" if plan.zero_stage else "states replicated"
    return plan.sharding + (f" in groups of {plan.dp_shard}" if plan.sharding == "hsdp" else "")


def _overlap(plan: SearchedPlan) -> str:
    """Overlaps that are on; where an axis has one rank there is nothing to overlap."""
    return " ".join(axis for axis, on in plan.overlap.items() if on and getattr(plan, axis) > 1) or "nothing"
