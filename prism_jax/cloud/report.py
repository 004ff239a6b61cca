"""Reports which instances to rent, how many, spot or not; the front of time and money, and what was ruled out and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, ClassVar

from ..core.page import Table
from ..core.page_text import block_lines
from ..core.report import INLINE, Report, RunRecord
from ..core.text_table import duration, prob
from ..horizon.outcome import Estimate
from ..search.figures import SearchedPlan
from .requirements import WorkDone


@dataclass(frozen=True)
class PartFacts:
    """Instances of one kind.

    Attributes:
        where: zone, region or cloud: the narrowest that the catalogue states.
        samples: of the global batch that they take.
    """

    cloud: str
    instance: str
    device: str
    where: str
    count: int
    n_gpus: int
    samples: int


@dataclass(frozen=True)
class RentFacts:
    """Something that may be rented, with what becomes of the job there.

    Attributes:
        parts: one kind of instance, or several that meet in the gradient exchange.
        policy: name of the rule by which the job moves between spot and on demand.
        law: of spot capacity; empty where none is rented.
        step_s: of a step, mean.
        interval_s, restart_s: between checkpoints, and from nodes at hand to the first new step.
        on_demand_usd_per_h, spot_usd_per_h: of all instances; None where the policy does not pay it.
        price_day, price_age_days: earliest day of the prices, and days since; None where the catalogue does not say.
        time_mean_s, time_p50_s, time_p95_s, cost_mean_usd, cost_p50_usd, cost_p95_usd: of the whole job.
        cost_cvar95_usd: mean of the dearest 5 % of the worlds.
        deadline_prob, budget_prob: that they are kept; None where there is none.
        spot_share: of the time in which nodes are paid.
        interruptions: on average.
        zones: that the job moves between when its nodes are taken, cheapest on spot first; empty: it stays in one. The price on
            spot is that of the first, the one on demand that of the dearest.
    """

    parts: tuple[PartFacts, ...]
    plan: SearchedPlan
    policy: str
    law: str
    step_s: float
    interval_s: float
    restart_s: float
    on_demand_usd_per_h: float | None
    spot_usd_per_h: float | None
    price_day: str | None
    price_age_days: int | None
    time_mean_s: Estimate
    time_p50_s: Estimate
    time_p95_s: Estimate
    cost_mean_usd: Estimate
    cost_p50_usd: Estimate
    cost_p95_usd: Estimate
    cost_cvar95_usd: Estimate
    deadline_prob: Estimate | None
    budget_prob: Estimate | None
    spot_share: float
    interruptions: float
    zones: tuple[str, ...]


@dataclass(frozen=True)
class GainFacts:
    """The best against a reference on fresh draws, both in the same worlds.

    Attributes:
        against: "on demand" or "what is running".
        reference: the cheapest that is so.
        saved_usd, saved_s: mean over worlds, and saved_usd_interval: 90 % of the worlds lie in it.
        saved_share: of the mean cost of the reference.
        saved_share_interval: 90 % interval of that share over samples of worlds.
    """

    against: str
    reference: RentFacts
    saved_usd: float
    saved_usd_interval: tuple[float, float]
    saved_s: float
    saved_share: float
    saved_share_interval: tuple[float, float]


@dataclass(frozen=True)
class CloudReport(Report):
    """The choice.

    Attributes:
        n_steps: to be done, those of a job that runs already left out.
        deadline_s, budget_usd: from now on; None: none.
        prob: with which both are to be kept.
        aim: "cost" or "time": what is small.
        left: of a job that runs already; None: it has not begun.
        catalogue: files, or what ships.
        best: on fresh draws; None: nothing keeps what is asked.
        front: faster or cheaper than all others in the mean, cheapest first.
        gain: None where there is nothing to compare with.
        infeasible: reason -> candidates; unusable: reason -> offers.
        n_offers, n_candidates, n_simulated: of the search.
    """

    kind: ClassVar[str] = "cloud"
    picture: ClassVar[str] = "prism_jax.cloud.picture:draw_cloud"

    job: str
    model: str
    n_steps: int
    deadline_s: float | None
    budget_usd: float | None
    prob: float
    aim: str
    left: WorkDone | None
    catalogue: tuple[str, ...]
    best: RentFacts | None
    front: tuple[RentFacts, ...]
    gain: GainFacts | None
    infeasible: Mapping[str, int]
    unusable: Mapping[str, int]
    n_offers: int
    n_candidates: int
    n_simulated: int
    n_worlds: int
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        blocks = [_headline(self), _best(self), _front(self), _ruled_out(self), _footer(self)]
        found = [line.rstrip() for block in blocks if block for line in (*block, "")]
        return found[:-1]


OLD_DAYS = 90
COLUMNS = ("instances", "where", "policy", "time mean", "p95", "cost mean", "p95", "USD/h")


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
        f"best: {_instances(best)}{f' in {_where(best)}' if _where(best) else ''}, {best.policy}",
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
    return block_lines(Table("what no other beats in time and money (means)", COLUMNS, rows))


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
