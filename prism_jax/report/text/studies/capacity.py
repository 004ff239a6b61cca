"""What fleets make of a job, as lines of plain text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from ....explain.words import percent
from ....study.fleets.capacity import Capacity
from ....units import format_bytes, format_s
from ...quantity import with_error
from ...table import Table
from ...types.studies.capacity import CapacityReport, FleetFacts
from ..study import plan_words


def lines(report: CapacityReport) -> list[str]:
    """The report, line by line."""
    known = [one for one in report.fleets if one.capacity is not None]
    labels = [one.label for one in known]
    return [
        *_table(report, known).lines(),
        *(f"{one.label}: {plan_words(one.plan)}" for one in known if one.plan),
        *(f"{one.label}: {one.fleet} is impossible: {one.problem}" for one in report.fleets if one.problem),
        *_probabilities("the fleet of the row does more per day than that of the column", labels, report.prob_faster),
        *_probabilities("it costs less per token", labels, report.prob_cheaper),
        *(f"note: {note}" for note in report.notes),
        f"seed {report.record.seed}; {report.elapsed_s:.1f} s",
    ]


def _table(report: CapacityReport, known: Sequence[FleetFacts]) -> Table:
    unit = report.sample_unit
    head = ["", "fleet", "cluster", "p50", "p95", "memory", "goodput", f"{unit}/day"]
    head += ["days p50", "days p95"] if report.days is None else [f"{unit} p50", f"{unit} sure at 95 %"]
    extra = [(name, text) for name, text in EXTRA if any(text(one) for one in known)]
    many = len(known) > 1
    rows = [_cells(report, one, [text(one) for _, text in extra], many) for one in known]
    asked = f"{report.tokens:.4g} {unit}" if report.days is None else f"{report.days:g} days"
    head += [name for name, _ in extra] + (["P(fastest)"] if many else [])
    return Table(f"{report.job}: {report.model}, {asked}, best plan by {report.objective}", head, rows)


def _cells(report: CapacityReport, one: FleetFacts, extra: Sequence[str], many: bool) -> tuple[str, ...]:
    own, made = one.figures, one.capacity
    assert own is not None
    assert made is not None
    span = (made.days_p50, made.days_p95) if report.days is None else (made.tokens_p50, made.tokens_p95)
    return (
        one.label,
        one.fleet,
        one.cluster,
        format_s(own.p50_s),
        "{} ± {} s".format(*with_error(own.p95_s, own.p95_error_s)),
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


def _per_mtoken(one: FleetFacts) -> str:
    price = one.figures.money_per_mtoken / one.capacity.goodput if one.figures and one.capacity else float("nan")
    return f"{price:.4g}" if isfinite(price) else ""


EXTRA: tuple[tuple[str, Callable[[FleetFacts], str]], ...] = (
    ("money p50", _figure(lambda own: own.money_p50)),
    ("money p95", _figure(lambda own: own.money_p95)),
    ("money/Mtoken", _per_mtoken),
    ("GPU energy kWh", _figure(lambda own: own.energy_kwh_p50)),
    ("P(cheapest)", lambda one: percent(one.prob_cheapest) if isfinite(one.prob_cheapest) else ""),
)


def _probabilities(what: str, labels: Sequence[str], probs: Sequence[Sequence[float]]) -> list[str]:
    if len(probs) < 2:
        return []
    rows = [
        (own, *("" if own == other else percent(prob) for other, prob in zip(labels, row, strict=True)))
        for own, row in zip(labels, probs, strict=True)
    ]
    return Table(f"Probability that {what}, errors they share counted once", ("", *labels), rows).lines()
