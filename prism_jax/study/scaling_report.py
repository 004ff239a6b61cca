"""Reports a job from small clusters to large ones, and what fleets make of a job: tokens, days, money, energy.

A scaling study says throughput, exposed communication, energy and money; a capacity plan how probable it is that a fleet is
better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Annotated, ClassVar

from ..core.content import ByContent
from ..core.page import Table
from ..core.page_text import block_lines
from ..core.report import INLINE, Report, RunRecord
from ..core.text_table import time_with_error
from ..core.units import format_bytes, format_s
from ..explain.types import percent
from ..search.figures import SearchedPlan
from ..search.report import plan_words
from .capacity import Capacity
from .figures import JobFigures
from .report import heading, probability_table, short
from .scaling import PassOnset, SizeRow


@dataclass(frozen=True)
class TargetFacts:
    """The smallest size that meets a target.

    Attributes:
        n_devices: None if no size meets it more likely than not.
        prob: that this size meets it, given what the cost model does not know.
    """

    target: str
    n_devices: int | None
    prob: float


@dataclass(frozen=True)
class ScalingReport(Report):
    """A job on several numbers of GPUs.

    Attributes:
        mode: weak (batch grows with the GPUs) or strong (batch stays).
        stop_size: first size whose marginal return is below `threshold`; None if there is none.
        onset_step: GPUs at which data-parallel communication shows with 5 % of a step without variability; knee: first of the
            sizes at which it does in the simulation.
        sample_unit: what is meant where figures say tokens.
    """

    kind: ClassVar[str] = "scaling"
    picture: ClassVar[str] = "prism_jax.study.picture:draw_scaling"

    job: str
    mode: str
    objective: str
    threshold: float
    rows: tuple[SizeRow, ...]
    stop_size: int | None
    onsets: tuple[PassOnset, ...]
    knee: int | None
    target: TargetFacts | None
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
    onset_step: float = nan
    sample_unit: str = "tokens"

    def lines(self) -> list[str]:
        known = [row.figures for row in self.rows if row.figures]
        shown = [column for column in COLUMNS if any(map(column.is_known, known))]
        varied = list(dict.fromkeys(field for row in self.rows for field in row.settings))
        head = ("GPUs", *map(short, varied), *(heading(column.name, self.sample_unit) for column in shown))
        cells = [_cells(row, varied, shown) for row in self.rows]
        title = f"{self.job}: {self.mode} scaling" + (f", best plan by {self.objective}" if varied else "")
        return [
            *block_lines(Table(title, head, cells)),
            *_reasons(self),
            *_answers(self),
            *(f"note: {note}" for note in self.notes),
            f"seed {self.record.seed}; {self.elapsed_s:.1f} s",
        ]


MOST_REASONS = 4


@dataclass(frozen=True)
class _Column:
    name: str
    text: Callable[[SizeRow, JobFigures], str]
    is_known: Callable[[JobFigures], bool] = lambda _: True


COLUMNS = (
    _Column("p50", lambda _, own: format_s(own.p50_s)),
    _Column("p95", lambda _, own: time_with_error(own.p95_s, own.p95_error_s)),
    _Column("p95/p50", lambda _, own: f"{own.p95_s / own.p50_s:.3f}"),
    _Column("tokens/s", lambda _, own: f"{own.tokens_per_s:,.0f}"),
    _Column("per GPU", lambda row, own: f"{own.tokens_per_s_per_gpu:,.0f} ({100 * row.per_gpu_change:+.1f}%)"),
    _Column("MFU", lambda _, own: f"{100 * own.mfu:.1f}%"),
    _Column("exposed comm", lambda _, own: f"{100 * _exposed_s(own) / own.mean_s:.1f}%"),
    _Column("hidden comm", lambda _, own: f"{100 * _hidden_s(own) / own.mean_s:.1f}%"),
    _Column("return", lambda row, _: f"{row.marginal_return:.2f}" if isfinite(row.marginal_return) else "-"),
    _Column("W/GPU", lambda _, own: f"{own.gpu_watts:.0f}", lambda own: isfinite(own.gpu_watts)),
    _Column("J/token", lambda _, own: f"{own.joules_per_token:.3g}", lambda own: isfinite(own.joules_per_token)),
    _Column("money/Mtoken", lambda _, own: f"{own.money_per_mtoken:.4g}", lambda own: isfinite(own.money_per_mtoken)),
    _Column("P(target)", lambda _, own: f"{100 * own.target_prob:.0f}%", lambda own: isfinite(own.target_prob)),
)


def _cells(row: SizeRow, varied: list[str], shown: list[_Column]) -> tuple[str, ...]:
    own = row.figures
    count = f"{row.n_devices:,}" + ("" if own is None or own.fits else " !")
    texts = ["impossible", *("" for _ in shown[1:])] if own is None else [column.text(row, own) for column in shown]
    return (count, *(row.settings.get(field, "") for field in varied), *texts)


def _reasons(report: ScalingReport) -> list[str]:
    first = {row.problem: row.n_devices for row in reversed(report.rows) if row.problem}
    told = [f"impossible: {n:,} GPUs: {reason}" for reason, n in list(first.items())[::-1]]
    unfit = any(row.figures and not row.figures.fits for row in report.rows)
    return [*(["! does not fit into memory"] if unfit else []), *told[:MOST_REASONS]]


def _answers(report: ScalingReport) -> list[str]:
    if report.stop_size is None:
        stop = f"marginal return stays above {report.threshold:g}"
    else:
        stop = f"marginal return falls below {report.threshold:g} at {report.stop_size:,} GPUs"
    told = [stop]
    shows = f"{report.onset_step:,.0f} GPUs" if isfinite(report.onset_step) else "no size"
    seen = f"{report.knee:,}" if report.knee else "none of the sizes"
    told.append(f"data-parallel communication shows with 5% of the step from {shows} (closed form), {seen} (simulated)")
    told += [_onset(own) for own in report.onsets]
    if report.target is not None:
        own = report.target
        if own.n_devices is None:
            told.append(
                f"{own.target}: no size meets it more likely than not; highest probability {100 * own.prob:.0f}%"
            )
        else:
            told.append(f"{own.target}: from {own.n_devices:,} GPUs, with probability {100 * own.prob:.0f}%")
    return told


def _onset(own: PassOnset) -> str:
    sizes = ", ".join(
        f"{name} n* = {value:,.0f}" if isfinite(value) and value < 1e9 else f"{name} never"
        for name, value in (("ring", own.ring), ("tree", own.tree), ("as the network chooses", own.law))
    )
    return f"  {own.name}: {format_s(own.comm_s, 3)} during {format_s(own.window_s, 3)} of a layer; stops hiding at {sizes}"


def _exposed_s(own: JobFigures) -> float:
    return own.exposed_tp_s + own.exposed_cp_s + own.exposed_ep_s + own.exposed_dp_s + own.exposed_pp_s


def _hidden_s(own: JobFigures) -> float:
    return own.hidden_tp_s + own.hidden_cp_s + own.hidden_ep_s + own.hidden_dp_s


@dataclass(frozen=True, eq=False)
class FleetFacts(ByContent):
    """One fleet.

    Attributes:
        label: letter that stands for it.
        fleet: as it was given.
        plan, figures, capacity: the best plan; None where no plan is possible; `problem` says why.
        prob_fastest, prob_cheapest: that it has the most tokens per day, or the least money per token, of all fleets.
    """

    label: str
    fleet: str
    cluster: str
    device: str
    n_devices: int
    plan: SearchedPlan | None
    figures: JobFigures | None
    capacity: Capacity | None
    problem: str
    prob_fastest: float
    prob_cheapest: float = nan


@dataclass(frozen=True)
class CapacityReport(Report):
    """Fleets in the order given.

    Attributes:
        days, tokens: what is asked; the other is None.
        reliability: of which failures the goodput knows; None: of none.
        prob_faster, prob_cheaper: a row for each fleet that can run the job: probabilities that it does more tokens per day, or
            takes less money per token, than each of them; the latter is empty without prices.
        deadline_days: within which the tokens are to be done; None: whenever.
        chosen, chosen_by: label of the fleet whose job `-o` writes, and why it is that one.
    """

    kind: ClassVar[str] = "capacity"
    picture: ClassVar[str] = "prism_jax.study.picture:draw_capacity"

    job: str
    model: str
    sample_unit: str
    objective: str
    days: float | None
    tokens: float | None
    reliability: str | None
    fleets: tuple[FleetFacts, ...]
    prob_faster: tuple[tuple[float, ...], ...]
    prob_cheaper: tuple[tuple[float, ...], ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
    deadline_days: float | None = None
    chosen: str = ""
    chosen_by: str = ""

    @property
    def asked(self) -> str:
        """What is to be done, in words."""
        if self.days is not None:
            return f"{self.days:g} days"
        within = "" if self.deadline_days is None else f" within {self.deadline_days:.4g} days"
        return f"{self.tokens:.4g} {self.sample_unit}{within}"

    def lines(self) -> list[str]:
        known = [one for one in self.fleets if one.capacity is not None]
        labels = [one.label for one in known]
        return [
            *block_lines(_table(self, known)),
            *(f"{one.label}: {plan_words(one.plan)}" for one in known if one.plan),
            *(f"{one.label}: {one.fleet} is impossible: {one.problem}" for one in self.fleets if one.problem),
            *_probabilities("the fleet of the row does more per day than that of the column", labels, self.prob_faster),
            *_probabilities(f"it costs less per {self.sample_unit.removesuffix('s')}", labels, self.prob_cheaper),
            *_chosen(self, known),
            *(f"note: {note}" for note in self.notes),
            f"seed {self.record.seed}; {self.elapsed_s:.1f} s",
        ]


def _chosen(report: CapacityReport, known: Sequence[FleetFacts]) -> list[str]:
    """The fleet that `-o` writes; nothing where there is no choice."""
    if len(known) < 2 and report.deadline_days is None:
        return []
    return [f"chosen: {one.label}, {one.fleet}: {report.chosen_by}" for one in known if one.label == report.chosen]


def _table(report: CapacityReport, known: Sequence[FleetFacts]) -> Table:
    unit = report.sample_unit
    head = ["", "fleet", "cluster", "p50", "p95", "memory", "goodput", f"{unit}/day"]
    head += ["days p50", "days p95"] if report.days is None else [f"{unit} p50", f"{unit} sure at 95 %"]
    extra = [(name, text) for name, text in EXTRA if any(text(one) for one in known)]
    many = len(known) > 1
    rows = [_capacity_cells(report, one, [text(one) for _, text in extra], many) for one in known]
    head += [heading(name, unit) for name, _ in extra] + (["P(fastest)"] if many else [])
    return Table(f"{report.job}: {report.model}, {report.asked}, best plan by {report.objective}", head, rows)


def _capacity_cells(report: CapacityReport, one: FleetFacts, extra: Sequence[str], many: bool) -> tuple[str, ...]:
    own, made = one.figures, one.capacity
    assert own is not None
    assert made is not None
    span = (made.days_p50, made.days_p95) if report.days is None else (made.tokens_p50, made.tokens_p95)
    return (
        one.label,
        one.fleet,
        one.cluster,
        format_s(own.p50_s),
        time_with_error(own.p95_s, own.p95_error_s),
        format_bytes(own.memory_bytes, 3),
        f"{100 * made.goodput:.1f}%" if report.reliability else "",
        f"{made.tokens_per_day:.4g}",
        *(f"{value:.4g}" for value in span),
        *extra,
        *([percent(one.prob_fastest)] if many else []),
    )


def _figure(value: Callable[[Capacity], float]) -> Callable[[FleetFacts], str]:
    """Text of a figure; empty where it is not known."""

    def text(one: FleetFacts) -> str:
        number = value(one.capacity) if one.capacity else float("nan")
        return f"{number:,.4g}" if isfinite(number) else ""

    return text


def _share(prob: float) -> str:
    return percent(prob) if isfinite(prob) else ""


def _per_mtoken(one: FleetFacts) -> str:
    price = one.figures.money_per_mtoken / one.capacity.goodput if one.figures and one.capacity else float("nan")
    return f"{price:.4g}" if isfinite(price) else ""


EXTRA: tuple[tuple[str, Callable[[FleetFacts], str]], ...] = (
    ("P(on time)", lambda one: _share(one.capacity.deadline_prob if one.capacity else nan)),
    ("money p50", _figure(lambda own: own.money_p50)),
    ("money p95", _figure(lambda own: own.money_p95)),
    ("money/Mtoken", _per_mtoken),
    ("GPU energy kWh", _figure(lambda own: own.energy_kwh_p50)),
    ("P(cheapest)", lambda one: _share(one.prob_cheapest)),
)


def _probabilities(what: str, labels: Sequence[str], probs: Sequence[Sequence[float]]) -> list[str]:
    if len(probs) < 2:
        return []
    return block_lines(probability_table(f"Probability that {what}, errors they share counted once", labels, probs))
