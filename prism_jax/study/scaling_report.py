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
from ..core.page import Block, Card, Facts, Note, Table, Tone, more
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
from ..core.text_table import amount, duration, percent as share, time_with_error
from ..core.units import format_bytes, format_count, format_s
from ..explain.types import percent
from ..search.figures import SearchedPlan
from ..search.report import degrees_words, plan_words
from .capacity import DAY_S, Capacity, FleetCurve
from .figures import JobFigures
from .report import SAME_DRAWS, SAME_OPEN, figure_facts, heading, probability_table, short
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
        verdict, tone = _scaling_verdict(self)
        row, largest = possible[-1]
        figures = figure_facts(largest, self.sample_unit)
        change = (
            f" ({share(row.per_gpu_change, sign=True)} against {possible[0][0].n_devices:,})"
            if len(possible) > 1
            else ""
        )
        return Card(
            title=f"{self.job}: {self.mode} scaling, {self.rows[0].n_devices:,} to {self.rows[-1].n_devices:,} GPUs",
            verdict=verdict,
            tone=tone,
            facts={
                f"{row.n_devices:,} GPUs": figures["step time"],
                "speed": f"{largest.tokens_per_s_per_gpu:,.0f} {self.sample_unit}/s per GPU{change}",
                "waiting": f"{share(_exposed_s(largest) / largest.mean_s)} of the step for communication",
                "dp comm": _dp_words(self),
            },
            evidence=SAME_DRAWS,
            assumptions=(SAME_OPEN,),
            next_step=f"prism-jax search {self.job}: other plans; {more(self.notes)}",
        )

    def blocks(self) -> Sequence[Block]:
        known = [row.figures for row in self.rows if row.figures]
        shown = [column for column in COLUMNS if any(map(column.is_known, known))]
        varied = list(dict.fromkeys(field for row in self.rows for field in row.settings))
        head = ("GPUs", *map(short, varied), *(heading(column.name, self.sample_unit) for column in shown))
        cells = [_cells(row, varied, shown) for row in self.rows]
        title = f"{self.job}: {self.mode} scaling" + (f", best plan by {self.objective}" if varied else "")
        told = [*_reasons(self), *_answers(self), *(f"note: {note}" for note in self.notes)]
        return [Table(title, head, cells), *map(Note, told)]


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
            title=f"{self.job}: {self.asked}, best plan by {self.objective}",
            verdict=_capacity_verdict(self, one, one.capacity, len(known) > 1),
            tone=_capacity_tone(one.capacity),
            facts=_capacity_facts(self, one, one.capacity),
            evidence=_capacity_evidence(self, known),
            assumptions=self.notes[:1],
            next_step=f"-o job.yaml writes this job; {more(self.notes)}",
        )

    def blocks(self) -> Sequence[Block]:
        known = [one for one in self.fleets if one.capacity is not None]
        labels = [one.label for one in known]
        plans = {one.label: plan_words(one.plan) for one in known if one.plan}
        found: list[Block] = [_table(self, known)]
        if any(isfinite(one.capacity.money_p50) for one in known if one.capacity):
            found.append(Note("Money is in the currency of the price."))
        chosen = f"{self._named(self.chosen)}: {self.chosen_by}" if self.chosen else ""
        found.append(Facts("Plans", {**plans, **({"chosen": chosen} if len(known) > 1 or self.deadline_days else {})}))
        found += [Note(f"{one.label}: {one.fleet} is impossible: {one.problem}") for one in self.fleets if one.problem]
        for what, probs in (
            ("does more per day", self.prob_faster),
            (f"costs less per {self._unit}", self.prob_cheaper),
        ):
            if len(probs) > 1:
                found.append(
                    probability_table(
                        f"Probability that the fleet of the row {what} than that of the column", labels, probs
                    )
                )
        return [*found, *(Note(f"note: {note}") for note in self.notes)]

    @property
    def _unit(self) -> str:
        return self.sample_unit.removesuffix("s")

    def _named(self, label: str) -> str:
        return ", ".join((label, *(one.fleet for one in self.fleets if one.label == label)))


SURE, UNLIKELY = 0.9, 0.5  # probabilities of a deadline that is kept, or missed


def _capacity_verdict(report: CapacityReport, one: FleetFacts, made: Capacity, has_choice: bool) -> str:
    """The fleet to choose and why, or when the only one is done."""
    if isfinite(made.deadline_prob):
        done = f"done within {report.deadline_days:.4g} days with probability {percent(made.deadline_prob)}"
        return f"{one.fleet} is {done}." if not has_choice else f"Choose {one.label}, {one.fleet}: {done}."
    if has_choice:
        return f"Choose {one.label}, {one.fleet}: {report.chosen_by}."
    most = "takes" if report.days is None else "does"
    return f"{one.fleet} {most} {_span_words(report, made).partition(',')[0]}."


def _capacity_tone(made: Capacity) -> Tone:
    if not isfinite(made.deadline_prob):
        return "plain"
    return "good" if made.deadline_prob >= SURE else "unsure" if made.deadline_prob >= UNLIKELY else "bad"


def _span_words(report: CapacityReport, made: Capacity) -> str:
    if report.days is None:
        middle, sure = (duration(DAY_S * days) for days in (made.days_p50, made.days_p95))
    else:
        middle, sure = (f"{format_count(n)} {report.sample_unit}" for n in (made.tokens_p50, made.tokens_p95))
    return f"{middle} at the median, {sure} with 95% certainty"


def _capacity_facts(report: CapacityReport, one: FleetFacts, made: Capacity) -> dict[str, str]:
    goodput = f", goodput {share(made.goodput)}" if report.reliability else ", without failures"
    facts = {
        "time" if report.days is None else "work": _span_words(report, made),
        "speed": f"{format_count(made.tokens_per_day)} {report.sample_unit} a day{goodput}",
    }
    if isfinite(made.money_p50):
        most = "" if made.money_p95 == made.money_p50 else f"; {amount(made.money_p95)} with 95% certainty"
        facts["money"] = f"{amount(made.money_p50)}{most} (currency of the price)"
    if one.plan is not None:
        facts["plan"] = f"{degrees_words(one.plan)}, micro-batch {one.plan.micro_batch}"
    return facts


def _capacity_evidence(report: CapacityReport, known: Sequence[FleetFacts]) -> str:
    """Evidence for the choice; errors that fleets share cancel."""
    if len(known) < 2:
        return "simulated steps; 95% certainty includes the error of the cost model"
    one = next(one for one in known if one.label == report.chosen)
    cheapest = f", cheapest {percent(one.prob_cheapest)}" if isfinite(one.prob_cheapest) else ""
    return f"of {len(known)} fleets: P(fastest) {percent(one.prob_fastest)}{cheapest}; shared errors cancel"


def _table(report: CapacityReport, known: Sequence[FleetFacts]) -> Table:
    unit = report.sample_unit
    head = ["", "fleet", "cluster", "p50", "p95", "memory", "goodput", f"{unit}/day"]
    head += ["days p50", "days p95"] if report.days is None else [f"{unit} p50", f"{unit} sure at 95%"]
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
        format_count(made.tokens_per_day),
        *(f"{value:,.4g}" if report.days is None else format_count(value) for value in span),
        *extra,
        *([percent(one.prob_fastest)] if many else []),
    )


def _figure(value: Callable[[Capacity], float]) -> Callable[[FleetFacts], str]:
    """Text of a figure; empty where it is not known."""

    def text(one: FleetFacts) -> str:
        number = value(one.capacity) if one.capacity else float("nan")
        return amount(number) if isfinite(number) else ""

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
