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
from ..core.page import Block, Card, Facts, Note, Table, Tone, notes, tone_of_chance
from ..core.readable import amount, duration, percent as share, time_with_error
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord, then_or
from ..core.units import format_count, format_s
from ..explain.types import percent
from ..search.figures import SearchedPlan
from .capacity import DAY_S, Capacity, FleetCurve
from .figures import JobFigures
from .report import COLUMNS, SAME_DRAWS, SAME_OPEN, figure_facts, heading, of_figures, probability_table, reasons, short
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
        onset_step: GPUs at which data-parallel communication reaches 5% of a step without variability; knee: first of the
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

    def card(self) -> Card:
        possible = [(row, row.figures) for row in self.rows if row.figures is not None]
        row, largest = possible[-1]
        than = f" ({share(row.per_gpu_change, sign=True)} against {possible[0][0].n_devices:,})"
        change = than if len(possible) > 1 else ""
        return Card(
            f"{self.job}: {self.mode} scaling, {self.rows[0].n_devices:,} to {self.rows[-1].n_devices:,} GPUs",
            *_scaling_verdict(self),
            facts={
                f"{row.n_devices:,} GPUs": figure_facts(largest, self.sample_unit)["step time"],
                "speed": f"{largest.tokens_per_s_per_gpu:,.0f} {self.sample_unit}/s per GPU{change}",
                "waiting": f"{share(largest.exposed_s / largest.mean_s)} of the step for communication",
                "dp comm": _dp_words(self),
            },
            evidence=SAME_DRAWS,
            assumptions=(SAME_OPEN,),
            next_step=f"prism-jax search {self.job}: other plans",
        )

    def blocks(self) -> Sequence[Block]:
        varied = list(dict.fromkeys(field for row in self.rows for field in row.settings))
        columns = {
            "GPUs": lambda row: f"{row.n_devices:,}" + ("" if row.figures is None or row.figures.fits else " !"),
            **{short(field): lambda row, field=field: row.settings.get(field, "") for field in varied},
            "p50": lambda row: "impossible" if row.figures is None else format_s(row.figures.p50_s),
            **of_figures(SPEED, self.sample_unit),
            heading("per GPU", self.sample_unit): _per_gpu,
            **of_figures(COMMUNICATION, self.sample_unit),
            "return": _return,
            **of_figures(ENERGY, self.sample_unit),
        }
        title = f"{self.job}: {self.mode} scaling" + (f", best plan by {self.objective}" if varied else "")
        unfit = any(row.figures and not row.figures.fits for row in self.rows)
        return [
            Table.of(title, self.rows, columns),
            Note("! does not fit into memory" if unfit else ""),
            *reasons(self.rows, lambda row: f"{row.n_devices:,} GPUs"),
            *map(Note, _answers(self)),
            *notes(self.notes),
        ]


SPEED: dict[str, Callable[[JobFigures], str]] = {
    "p95": lambda own: time_with_error(own.p95_s, own.p95_error_s),
    "p95/p50": lambda own: f"{own.p95_s / own.p50_s:.3f}",
    "tokens/s": lambda own: f"{own.tokens_per_s:,.0f}",
}
COMMUNICATION: dict[str, Callable[[JobFigures], str]] = {
    "MFU": COLUMNS["MFU"],
    "exposed comm": lambda own: f"{100 * own.exposed_s / own.mean_s:.1f}%",
    "hidden comm": lambda own: f"{100 * own.hidden_s / own.mean_s:.1f}%",
}
ENERGY: dict[str, Callable[[JobFigures], str]] = {
    **{name: COLUMNS[name] for name in ("W/GPU", "J/token", "money/Mtoken")},
    "P(target)": lambda own: f"{100 * own.target_prob:.0f}%" if isfinite(own.target_prob) else "",
}


def _per_gpu(row: SizeRow) -> str:
    """Speed of a GPU, and its change against the smallest size."""
    own = row.figures
    return "" if own is None else f"{own.tokens_per_s_per_gpu:,.0f} ({100 * row.per_gpu_change:+.1f}%)"


def _return(row: SizeRow) -> str:
    """The marginal return of the GPUs that were added."""
    if row.figures is None:
        return ""
    return f"{row.marginal_return:.2f}" if isfinite(row.marginal_return) else "-"


def _scaling_verdict(report: ScalingReport) -> tuple[str, Tone]:
    """Whether the target is met, or how far more GPUs pay."""
    if report.target is not None:
        own = report.target
        if own.n_devices is None:
            return f"No size meets {own.target}; the most probable one does with {100 * own.prob:.0f}%.", "bad"
        return f"{own.target}: from {own.n_devices:,} GPUs, with probability {100 * own.prob:.0f}%.", "good"
    return f"{_stop(report)}.", "plain" if report.stop_size is None else "unsure"


def _stop(report: ScalingReport) -> str:
    """Size at which the marginal return of more GPUs falls below the threshold, in words."""
    if report.stop_size is None:
        return f"More GPUs pay at all of these sizes: the marginal return stays above {report.threshold:g}"
    return f"More GPUs stop paying at {report.stop_size:,}: the marginal return falls below {report.threshold:g}"


def _dp_words(report: ScalingReport) -> str:
    shows = f"{report.onset_step:,.0f} GPUs" if isfinite(report.onset_step) else "no size"
    seen = f"{report.knee:,}" if report.knee else "none"
    return f"5% of the step at {shows} (formula), {seen} (simulated)"


def _answers(report: ScalingReport) -> list[str]:
    """Target, marginal return, and where data-parallel communication shows."""
    told = [_scaling_verdict(report)[0]] if report.target is not None else []
    return [
        *told,
        f"{_stop(report)}.",
        f"Data-parallel communication: {_dp_words(report)}.",
        *map(_onset, report.onsets),
    ]


def _onset(own: PassOnset) -> str:
    sizes = ", ".join(
        f"{name} {value:,.0f}" if isfinite(value) and value < 1e9 else f"{name} any"
        for name, value in (("ring", own.ring), ("tree", own.tree), ("as the network chooses", own.law))
    )
    takes, window = format_s(own.comm_s, 3), format_s(own.window_s, 3)
    return f"{own.name}: {takes} of communication under {window} of compute of a layer; GPUs up to which it hides: {sizes}."


@dataclass(frozen=True, eq=False)
class FleetFacts(ByContent):
    """One fleet.

    Attributes:
        label: letter that stands for it.
        fleet: as it was given.
        plan, figures, capacity: the best plan; None where no plan is possible; `problem` says why.
        prob_fastest, prob_cheapest: that it has the most tokens per day, or the least money per token, of all fleets.
        curve: for pictures; absent where no plan is possible and in reports of versions before 0.2.
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
    curve: Annotated[FleetCurve | None, WHERE_KNOWN] = None


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
        """Work to be done, in words."""
        if self.days is not None:
            return f"{self.days:g} days"
        within = "" if self.deadline_days is None else f" within {self.deadline_days:.4g} days"
        return f"{format_count(self.tokens or 0.0)} {self.sample_unit}{within}"

    def card(self) -> Card:
        one = next(one for one in self.fleets if one.label == (self.chosen or one.label) and one.capacity is not None)
        known = [one for one in self.fleets if one.capacity is not None]
        assert one.capacity is not None
        return Card(
            f"{self.job}: {self.asked}, best plan by {self.objective}",
            _capacity_verdict(self, one, one.capacity, len(known) > 1),
            tone_of_chance(one.capacity.deadline_prob) if isfinite(one.capacity.deadline_prob) else "plain",
            facts=_capacity_facts(self, one, one.capacity),
            evidence=_capacity_evidence(self, known),
            assumptions=self.notes[:1],
            next_step=then_or(self.record.command, "prism-jax predict {}", KEEP),
        )

    def blocks(self) -> Sequence[Block]:
        known = [one for one in self.fleets if one.capacity is not None]
        labels = [one.label for one in known]
        has_money = any(isfinite(one.capacity.money_p50) for one in known if one.capacity)
        is_choice = len(known) > 1 or self.deadline_days
        plans = {
            **{one.label: one.plan.words for one in known if one.plan},
            "chosen": f"{self._named(self.chosen)}: {self.chosen_by}" if self.chosen and is_choice else "",
        }
        compared = (("does more per day", self.prob_faster), (f"costs less per {self._unit}", self.prob_cheaper))
        better = "Probability that the fleet of the row {} than that of the column"
        return [
            _table(self, known),
            Note("Money is in the currency of the price." if has_money else ""),
            Facts("Plans", plans),
            *(Note(f"{one.label}: {one.fleet} is impossible: {one.problem}") for one in self.fleets if one.problem),
            *(probability_table(better.format(what), labels, probs) for what, probs in compared if len(probs) > 1),
            *notes(self.notes),
        ]

    @property
    def _unit(self) -> str:
        return self.sample_unit.removesuffix("s")

    def _named(self, label: str) -> str:
        return ", ".join((label, *(one.fleet for one in self.fleets if one.label == label)))


def _capacity_verdict(report: CapacityReport, one: FleetFacts, made: Capacity, has_choice: bool) -> str:
    """The fleet to choose and why, or when the only one is done."""
    if isfinite(made.deadline_prob):
        done = f"done within {report.deadline_days:.4g} days with probability {percent(made.deadline_prob)}"
        return f"{one.fleet} is {done}." if not has_choice else f"Choose {one.label}, {one.fleet}: {done}."
    if has_choice:
        return f"Choose {one.label}, {one.fleet}: {report.chosen_by}."
    most = "takes" if report.days is None else "does"
    return f"{one.fleet} {most} {_span_words(report, made).partition(',')[0]}."


def _span_words(report: CapacityReport, made: Capacity) -> str:
    if report.days is None:
        middle, sure = (duration(DAY_S * days) for days in (made.days_p50, made.days_p95))
    else:
        middle, sure = (f"{format_count(n)} {report.sample_unit}" for n in (made.tokens_p50, made.tokens_p95))
    return f"{middle} at the median, {sure} with 95% certainty"


def _capacity_facts(report: CapacityReport, one: FleetFacts, made: Capacity) -> dict[str, str]:
    goodput = f", goodput {share(made.goodput)}" if report.reliability else ", without failures"
    most = "" if made.money_p95 == made.money_p50 else f"; {amount(made.money_p95)} with 95% certainty"
    return {
        "time" if report.days is None else "work": _span_words(report, made),
        "speed": f"{format_count(made.tokens_per_day)} {report.sample_unit} a day{goodput}",
        "money": f"{amount(made.money_p50)}{most} (currency of the price)" if isfinite(made.money_p50) else "",
        "plan": one.plan.in_short if one.plan else "",
    }


def _capacity_evidence(report: CapacityReport, known: Sequence[FleetFacts]) -> str:
    """Evidence for the choice; errors that fleets share cancel."""
    if len(known) < 2:
        return "simulated steps; 95% certainty includes the error of the cost model"
    one = next(one for one in known if one.label == report.chosen)
    cheapest = f", cheapest {percent(one.prob_cheapest)}" if isfinite(one.prob_cheapest) else ""
    return f"of {len(known)} fleets: P(fastest) {percent(one.prob_fastest)}{cheapest}; shared errors cancel"


def _table(report: CapacityReport, known: Sequence[FleetFacts]) -> Table:
    unit = report.sample_unit
    columns = {
        "": lambda one: one.label,
        "fleet": lambda one: one.fleet,
        "cluster": lambda one: one.cluster,
        **{name: text for name, text in of_figures(COLUMNS, unit).items() if name in ("p50", "p95", "memory")},
        "goodput": lambda one: f"{100 * one.capacity.goodput:.1f}%" if report.reliability else "",
        f"{unit}/day": lambda one: format_count(one.capacity.tokens_per_day),
        **(DAYS if report.days is None else {heading(name, unit): text for name, text in WORK.items()}),
        **{heading(name, unit): text for name, text in EXTRA.items()},
        "P(fastest)": lambda one: percent(one.prob_fastest) if len(known) > 1 else "",
    }
    return Table.of(f"{report.job}: {report.model}, {report.asked}, best plan by {report.objective}", known, columns)


def _figure(value: Callable[[Capacity], float], text: Callable[[float], str] = amount) -> Callable[[FleetFacts], str]:
    """Text of a figure; empty where it is not known."""

    def cell(one: FleetFacts) -> str:
        number = value(one.capacity) if one.capacity else nan
        return text(number) if isfinite(number) else ""

    return cell


def _per_mtoken(one: FleetFacts) -> str:
    price = one.figures.money_per_mtoken / one.capacity.goodput if one.figures and one.capacity else nan
    return f"{price:.4g}" if isfinite(price) else ""


KEEP = "-o job.yaml writes this job"
DAYS = {
    "days p50": _figure(lambda own: own.days_p50, "{:,.4g}".format),
    "days p95": _figure(lambda own: own.days_p95, "{:,.4g}".format),
}
WORK = {
    "tokens p50": _figure(lambda own: own.tokens_p50, format_count),
    "tokens sure at 95%": _figure(lambda own: own.tokens_p95, format_count),
}
EXTRA: dict[str, Callable[[FleetFacts], str]] = {
    "P(on time)": _figure(lambda own: own.deadline_prob, percent),
    "money p50": _figure(lambda own: own.money_p50),
    "money p95": _figure(lambda own: own.money_p95),
    "money/Mtoken": _per_mtoken,
    "GPU energy kWh": _figure(lambda own: own.energy_kwh_p50),
    "P(cheapest)": lambda one: percent(one.prob_cheapest) if isfinite(one.prob_cheapest) else "",
}
