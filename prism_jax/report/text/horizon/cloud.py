"""The choice of a cloud as lines of plain text: what to rent, the front of time and money, what was ruled out and why."""

from __future__ import annotations

from math import isfinite

from ....horizon.outcome import Estimate
from ...quantity import prob
from ...table import Table
from ...types.horizon.cloud import CloudReport, GainFacts, RentFacts
from .run import duration

OLD_DAYS = 90
COLUMNS = ("instances", "where", "policy", "time mean", "p95", "cost mean", "p95", "USD/h")


def lines(report: CloudReport) -> list[str]:
    """The report, line by line."""
    blocks = [_headline(report), _best(report), _front(report), _ruled_out(report), _footer(report)]
    found = [line.rstrip() for block in blocks if block for line in (*block, "")]
    return found[:-1]


def money(usd: float, error: float | None = None) -> str:
    """US dollars, whole ones from a hundred on, with a standard error."""
    text = f"{usd:,.0f}" if abs(usd) >= 100.0 else f"{usd:.3g}"
    return f"{text} USD" if error is None else f"{text} ± {error:.2g} USD"


def _headline(report: CloudReport) -> list[str]:
    asked = []
    if report.deadline_s is not None:
        asked.append(f"done within {duration(report.deadline_s)}")
    if report.budget_usd is not None:
        asked.append(f"for at most {money(report.budget_usd)}")
    told = f"{' and '.join(asked)}, with probability {report.prob:g}" if asked else "no deadline, no budget"
    aim = "least expected cost" if report.aim == "cost" else "shortest p95 time"
    found = [f"{report.job}: {report.n_steps:,} steps of {report.model}; {told}; {aim}"]
    if report.left is not None:
        left = report.left
        found.append(
            f"running: {left.steps_done:,} steps done in {duration(left.elapsed_s)} for {money(left.spent_usd)}; figures are "
            "of what is left"
        )
    return found


def _best(report: CloudReport) -> list[str]:
    if report.best is None:
        return ["best: NONE, nothing keeps what is asked (below: what was ruled out and why)"]
    best = report.best
    plan = best.plan
    rows = [
        f"best: {_instances(best)} in {_where(best)}, {best.policy}",
        f"  plan      tp {plan.tp}, pp {plan.pp}, dp {plan.dp}, micro-batch {plan.micro_batch}, recompute {plan.recompute}; "
        f"{duration(best.step_s)} a step, checkpoint every {duration(best.interval_s)}",
        *_split(best),
        *_zones(best),
        f"  time      p50 {_time(best.time_p50_s)}, p95 {_time(best.time_p95_s)}, mean {_time(best.time_mean_s)}",
        f"  cost      mean {_money(best.cost_mean_usd)}, p95 {_money(best.cost_p95_usd)}, "
        f"mean of the dearest 5% {_money(best.cost_cvar95_usd)}",
    ]
    for name, chance in (("deadline", best.deadline_prob), ("budget", best.budget_prob)):
        if chance is not None:
            rows.append(f"  {name:<9} kept with probability {prob(chance.value)} (± {chance.error:.1g})")
    if best.spot_share:
        rows.append(
            f"  spot      {best.spot_share:.0%} of the paid time; {best.interruptions:.3g} interruptions; law: {best.law}"
        )
    return [*rows, *_age(best), *(_gain(report.gain) if report.gain else ())]


def _age(best: RentFacts) -> list[str]:
    if best.price_age_days is None:
        return ["  prices    without a date"]
    if best.price_age_days <= OLD_DAYS:
        return []
    return [f"  prices    of {best.price_day}: {best.price_age_days} days old; state today's with --catalog"]


def _gain(gain: GainFacts) -> list[str]:
    low, high = gain.saved_share_interval
    other = f"{gain.against} ({_instances(gain.reference)}, {gain.reference.policy})"
    return [f"  gain      {gain.saved_share:.1%} of the cost of {other}, {low:.1%} to {high:.1%} on fresh draws"]


def _split(best: RentFacts) -> list[str]:
    if len(best.parts) == 1:
        return []
    return [f"  split     {', '.join(f'{part.samples:,} samples on {part.instance}' for part in best.parts)}"]


def _zones(best: RentFacts) -> list[str]:
    return (
        [f"  zones     {', '.join(best.zones)}: the first that has all nodes, until they are taken"]
        if best.zones
        else []
    )


def _instances(rent: RentFacts) -> str:
    return " + ".join(f"{part.count} x {part.instance} ({part.n_gpus} {part.device})" for part in rent.parts)


def _where(rent: RentFacts) -> str:
    return " + ".join(dict.fromkeys(part.where for part in rent.parts))


def _front(report: CloudReport) -> list[str]:
    if not report.front:
        return []
    rows = [_row(one) for one in report.front]
    return Table("what no other beats in time and money (means)", COLUMNS, rows).lines()[:-1]


def _row(one: RentFacts) -> tuple[str, ...]:
    hourly = one.spot_usd_per_h if one.spot_usd_per_h is not None else one.on_demand_usd_per_h
    times = (_time(one.time_mean_s, False), _time(one.time_p95_s, False))
    costs = (_money(one.cost_mean_usd, False), _money(one.cost_p95_usd, False))
    return (_instances(one), _where(one), one.policy, *times, *costs, f"{hourly or 0.0:.4g}")


def _ruled_out(report: CloudReport) -> list[str]:
    found = [f"  {n:,} candidates: {reason}" for reason, n in sorted(report.infeasible.items(), key=lambda x: -x[1])]
    found += [f"  {n:,} offers: {reason}" for reason, n in sorted(report.unusable.items(), key=lambda x: -x[1])]
    head = (
        f"{report.n_offers:,} offers, {report.n_candidates:,} candidates, {report.n_simulated:,} simulated in "
        f"{report.n_worlds:,} worlds; ruled out:"
    )
    return [head, *found] if found else [head.replace("; ruled out:", "")]


def _footer(report: CloudReport) -> list[str]:
    notes = [f"note: {note}" for note in report.notes]
    return [*notes, f"catalogue: {', '.join(report.catalogue)}; seed {report.record.seed}; {report.elapsed_s:.1f} s"]


def _time(figure: Estimate, with_error: bool = True) -> str:
    return duration(figure.value, _error(figure, with_error)) if isfinite(figure.value) else "never"


def _money(figure: Estimate, with_error: bool = True) -> str:
    return money(figure.value, _error(figure, with_error)) if isfinite(figure.value) else "without end"


def _error(figure: Estimate, with_error: bool) -> float | None:
    return figure.error if with_error and isfinite(figure.error) else None
