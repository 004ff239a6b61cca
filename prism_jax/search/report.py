"""Reports what a search over plans has found: the best plan, how sure that is, what it gains, the plans behind it; or by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.report import INLINE, Report, RunRecord
from ..core.text_table import prob, time_to, uncertain_memory, value_with_error, with_error
from ..core.units import format_bytes, format_s
from .figures import CandidateFacts, GainEstimate, SearchedPlan, SizeFacts


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

    def lines(self) -> list[str]:
        blocks = [
            _headline(self),
            _best(self),
            _table(self),
            _infeasible(self),
            [f"note: {n}" for n in self.notes],
        ]
        lines = [line.rstrip() for block in blocks if block for line in (*block, "")]
        return lines[:-1]


@dataclass(frozen=True)
class SizesReport(Report):
    """Best plan of every cluster size.

    Attributes:
        front: numbers of devices that no other size beats in time, devices, energy and cost.
    """

    kind: ClassVar[str] = "sizes"

    job: SearchedJob
    objective: str
    objective_unit: str
    sizes: tuple[SizeFacts, ...]
    front: tuple[int, ...]
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        head = ("GPUs", self.objective, "GPU-s per step", "energy", "cost", "memory", "plan")
        is_time, unit = self.objective_unit == "s", self.objective_unit
        rows = [
            (
                f"{'*' if size.n_devices in self.front else ' '} {size.n_devices:,}",
                format_s(size.value_s) if is_time else f"{size.value_s:.4g} {unit}",
                f"{size.n_devices * (size.value_s if is_time else size.p50_s):,.0f}",
                f"{size.energy_j / 3.6e6:.4g} kWh",
                f"{size.cost:.4g}" if size.cost else "-",
                format_bytes(size.memory_bytes),
                plan_words(size.plan),
            )
            for size in self.sizes
        ]
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        title = f"{self.job.name}: {self.job.model} on {self.job.device}, best plan by {self.objective}"
        last = "* on the Pareto front of time, GPUs, energy and cost; energy and cost refer to the median step"
        return [title, "", *(joined(row, widths) for row in (head, *rows)), "", last]


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
        gain: 1 - after / before; gain_interval: 90 %, by Monte Carlo error alone.
    """

    kind: ClassVar[str] = "tune"

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

    def lines(self) -> list[str]:
        head = ("before", "after", "unit", "")
        rows = [(f"{n.before:,.6g}", f"{n.after:,.6g}", n.unit, f"{n.field}, {n.label}") for n in self.numbers]
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        name, half_s = f"p{100 * self.p:g}", self.base_s * (self.gain_interval[1] - self.gain_interval[0]) / 2.0
        smallest_s = max(half_s, self.base_s / 1e5)
        return [
            f"{self.job}: {name} {time_to(self.base_s, smallest_s)} -> {time_to(self.best_s, smallest_s)}",
            f"  gain over the job as it stands: {self.gain:.2%} of {name} (90 % interval {_range(self.gain_interval)} by Monte "
            "Carlo error alone, on fresh draws that the search did not use)",
            "",
            *(joined(row, widths).rstrip() for row in (head, *rows)),
            *(f"note: {note}" for note in self.notes),
        ]


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


def _headline(report: StudyReport) -> list[str]:
    return [
        f"{report.job.name}: {report.job.model} on {report.job.n_devices:,} x {report.job.device}",
        f"{report.n_plans:,} plans, {report.n_feasible:,} feasible, {report.n_simulated:,} simulated, "
        f"{report.n_raced:,} compared on {report.objective} in {format_s(report.elapsed_s)} ({report.method})",
    ]


def _best(report: StudyReport) -> list[str]:
    best, gain = report.best, report.gain
    smallest_s = max(best.p99_s - best.p50_s, best.value_error_s) / 30
    value = value_with_error(best.value_s, best.value_error_s, report.objective_unit)
    lines = [
        f"best: {plan_words(best.plan)}",
        f"  p50 {time_to(best.p50_s, smallest_s)}, p95 {time_to(best.p95_s, smallest_s)}, p99 {time_to(best.p99_s, smallest_s)}; "
        f"{report.objective} {value}; without variability {time_to(best.step_s, smallest_s)}",
        f"  memory {format_bytes(best.memory_bytes)} of {format_bytes(report.job.hbm_bytes)} per device: "
        f"{uncertain_memory(best.memory_interval_bytes, best.not_fit_prob)}",
        f"  MFU {best.mfu:.1%}, {best.tokens_per_s_per_gpu:,.0f} {report.job.sample_unit}/s per GPU at the median",
        f"  probability of being the best finalist: {prob(best.prob_best)}",
        f"  to change in the job: {' '.join(f'--set {change}' for change in best.changes) or 'nothing'}",
    ]
    if gain is not None and best.changes:
        low, high = gain.model_interval
        times = f"{time_to(gain.base_s, smallest_s)} -> {time_to(gain.best_s, smallest_s)}"
        if report.objective_unit != "s":
            times = f"{gain.base_s:.4g} -> {gain.best_s:.4g} {report.objective_unit}"
        lines += [
            f"  gain over the job's own plan: {gain.gain:.2%} of {report.objective} (90 % interval {low:.2%} to {high:.2%}, "
            "counting what the cost model does not know)",
            f"    {times}, on fresh draws that the search did not use ({_range(gain.gain_interval)} by Monte Carlo error alone)",
        ]
        if gain.posterior_interval is not None:
            lines.append(f"    {_range(gain.posterior_interval)} by the uncertainty of the fit")
    return lines


def _range(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.2%} to {interval[1]:.2%}"


def _table(report: StudyReport) -> list[str]:
    top = report.unlike
    head = ("", report.objective, "behind", "P(best)", "MFU", f"{report.job.sample_unit}/s/GPU", "memory", "plan")
    rows = [_row(number, candidate, top[0], report.objective_unit) for number, candidate in enumerate(top, start=1)]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [joined(row, widths) for row in (head, *rows)]
    if sum(candidate.tied for candidate in top) > 1:
        lines.append("= not distinguishable from the best (2 standard errors)")
    return lines


def _row(number: int, candidate: CandidateFacts, best: CandidateFacts, unit: str) -> tuple[str, ...]:
    value, error = candidate.value_s, candidate.value_error_s
    behind = candidate.behind_s / best.value_s
    tie = "=" if candidate.tied and number > 1 else " "
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


def joined(row: Sequence[str], widths: Sequence[int]) -> str:
    """Cells as a line: numbers to the right, words at the end."""
    *numbers, words = row
    return "  ".join([*(cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)), words])


def _infeasible(report: StudyReport) -> list[str]:
    reasons = sorted(report.infeasible.items(), key=lambda item: -item[1])[:MOST_REASONS]
    return ["not feasible:", *(f"  {n:>12,}  {text}" for text, n in reasons)] if reasons else []


def _sharding(plan: SearchedPlan) -> str:
    if plan.sharding == "none":
        return f"ZeRO-{plan.zero_stage}" if plan.zero_stage else "states replicated"
    return plan.sharding + (f" in groups of {plan.dp_shard}" if plan.sharding == "hsdp" else "")


def _overlap(plan: SearchedPlan) -> str:
    """Overlaps that are on; where an axis has one rank there is nothing to overlap."""
    return " ".join(axis for axis, on in plan.overlap.items() if on and getattr(plan, axis) > 1) or "nothing"
