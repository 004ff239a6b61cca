"""Reports which instances to rent, how many, spot or not; the front of time and money, and what was ruled out and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Note, Table, Tone, notes
from ..core.readable import amount, counted, duration, percent, prob, within
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
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
    """Cluster that can be rented, with time and cost of the job there.

    Attributes:
        parts: one kind of instance, or several that meet in the gradient exchange.
        policy: name of the rule by which the job moves between spot and on demand.
        law: of spot capacity; empty where none is rented.
        step_s: of a step, mean.
        interval_s, restart_s: between checkpoints, and from available nodes to the first new step.
        on_demand_usd_per_h, spot_usd_per_h: of all instances; None where the policy does not pay it.
        price_day, price_age_days: earliest day of the prices, and days since; None where the catalogue does not say.
        time_mean_s, time_p50_s, time_p95_s, cost_mean_usd, cost_p50_usd, cost_p95_usd: of the whole job.
        cost_cvar95_usd: mean cost of the worst 5% of the worlds.
        deadline_prob, budget_prob: probability that they are kept; None where there is none.
        spot_share: of the time in which nodes are paid.
        interruptions: on average.
        zones: among which the job moves when its nodes are taken, cheapest on spot first; empty: it stays in one. The price on
            spot is that of the first, the one on demand that of the most expensive.
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

    @property
    def usd_per_h(self) -> float:
        """Price by the hour on spot where it rents there, else on demand."""
        return (self.on_demand_usd_per_h if self.spot_usd_per_h is None else self.spot_usd_per_h) or 0.0

    @property
    def is_old(self) -> bool:
        """Whether the prices may have changed."""
        return (self.price_age_days or 0) > OLD_DAYS


@dataclass(frozen=True)
class GainFacts:
    """The best against a reference on fresh draws, both in the same worlds.

    Attributes:
        against: "on demand" or "what is running".
        reference: the cheapest choice of this kind.
        saved_usd, saved_s: mean over worlds, and saved_usd_interval: 90% of the worlds lie in it.
        saved_share: of the mean cost of the reference.
        saved_share_interval: 90% interval of that share over samples of worlds.
    """

    against: str
    reference: RentFacts
    saved_usd: float
    saved_usd_interval: tuple[float, float]
    saved_s: float
    saved_share: float
    saved_share_interval: tuple[float, float]


@dataclass(frozen=True)
class SimulatedRents:
    """Candidates that were simulated and that end, cheapest first, for pictures; some of them where there are many.

    Attributes:
        time_s, cost_usd: [candidate] means.
        has_spot: [candidate] whether it may rent spot instances.
    """

    time_s: tuple[float, ...]
    cost_usd: tuple[float, ...]
    has_spot: tuple[bool, ...]


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
        simulated: for pictures; absent in reports of versions before 0.2.
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

    simulated: Annotated[SimulatedRents | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        best = self.best
        counts = f"{self.n_simulated:,} of {self.n_candidates:,} candidates simulated, {self.n_worlds:,} runs each"
        old = f"prices are {best.price_age_days} days old: --catalog" if best is not None and best.is_old else ""
        return Card(
            f"{self.job}: {self.n_steps:,} steps of {self.model}, {self._aim}",
            *_verdict(self),
            facts={"asked": _asked(self)} if best is None else _card_facts(self, best),
            evidence=counts if best is None else f"{counts}; prices {best.price_day or 'undated'}",
            assumptions=self.notes[:1],
            next_step=old,
        )

    @property
    def _aim(self) -> str:
        return "least expected cost" if self.aim == "cost" else "shortest p95 time"

    def blocks(self) -> Sequence[Block]:
        front = "Pareto front of mean time and cost, on the draws of the search"
        counts = f"{self.n_offers:,} offers, {self.n_candidates:,} candidates, {self.n_simulated:,} simulated"
        ruled_out = [
            (reason, counted(n, kind))
            for kind, reasons in (("candidate", self.infeasible), ("offer", self.unusable))
            for reason, n in sorted(reasons.items(), key=lambda item: -item[1])
        ]
        return [
            Note(f"{self.job}: {self.n_steps:,} steps of {self.model}; {_asked(self)}; {self._aim}."),
            Note("" if self.left is None else f"running: {_done(self.left)}; figures are of what is left"),
            Facts("Best, on fresh draws", {} if self.best is None else _best(self, self.best)),
            Table.of(front, self.front, COLUMNS),
            Note(f"{counts} in {self.n_worlds:,} worlds."),
            Table("Ruled out", ("reason", "number"), ruled_out),
            *notes((*self.notes, f"catalogue: {', '.join(self.catalogue)}")),
        ]


def _done(left: WorkDone) -> str:
    return f"{left.steps_done:,} steps done in {duration(left.elapsed_s)} for {money(left.spent_usd)}"


OLD_DAYS = 90
COLUMNS: dict[str, Callable[[RentFacts], str]] = {
    "instances": lambda one: instances_words(one),
    "where": lambda one: _where(one),
    "policy": lambda one: one.policy,
    "time mean": lambda one: _plain_time(one.time_mean_s),
    "time p95": lambda one: _plain_time(one.time_p95_s),
    "cost mean": lambda one: _money(one.cost_mean_usd, False),
    "cost p95": lambda one: _money(one.cost_p95_usd, False),
    "USD/h": lambda one: f"{one.usd_per_h:,.4g}",
}


def money(usd: float, error: float | None = None) -> str:
    """US dollars with four significant digits, and a standard error."""
    return f"{amount(usd)} USD" if error is None else f"{amount(usd)} ± {amount(float(f'{error:.2g}'))} USD"


def _asked(report: CloudReport) -> str:
    asked = []
    if report.deadline_s is not None:
        asked.append(f"done within {duration(report.deadline_s)}")
    if report.budget_usd is not None:
        asked.append(f"for at most {money(report.budget_usd)}")
    return f"{' and '.join(asked)} with probability {percent(report.prob)}" if asked else "no deadline, no budget"


def _verdict(report: CloudReport) -> tuple[str, Tone]:
    if report.best is None:
        return "Nothing keeps what is asked.", "bad"
    is_asked = report.deadline_s is not None or report.budget_usd is not None
    return f"Rent {_rented(report.best)}.", "good" if is_asked else "plain"


def _rented(rent: RentFacts) -> str:
    return f"{instances_words(rent)}{f' in {_where(rent)}' if _where(rent) else ''}, {rent.policy.replace('_', ' ')}"


def _card_facts(report: CloudReport, best: RentFacts) -> dict[str, str]:
    asked = (
        (f"within {duration(report.deadline_s or 0.0)}", best.deadline_prob),
        (f"at most {money(report.budget_usd or 0.0)}", best.budget_prob),
    )
    kept = (f"{what} with probability {prob(chance.value)}" for what, chance in asked if chance is not None)
    return {
        "cost": f"mean {_money(best.cost_mean_usd)}; 1 in 20 runs at least {_money(best.cost_p95_usd, False)}",
        "time": f"median {_time(best.time_p50_s, best.time_p95_s)}; 1 in 20 at least {_time(best.time_p95_s)}",
        "plan": f"{best.plan.in_short}, {duration(best.step_s)} a step",
        "asked": ", ".join(kept),
        "saves": "" if report.gain is None else _saved(report.gain),
    }


def _saved(gain: GainFacts) -> str:
    return f"{percent(gain.saved_share)} of the cost {gain.against} {within(gain.saved_share_interval, percent)}"


def _best(report: CloudReport, best: RentFacts) -> dict[str, str]:
    times = (f"{name} {_time(one, best.time_p95_s)}" for name, one in _times_of(best).items())
    costs = (f"{name} {_money(one)}" for name, one in _costs_of(best).items())
    split = (f"{part.samples:,} samples on {part.instance}" for part in best.parts if len(best.parts) > 1)
    zones = f"{', '.join(best.zones)}: the first that has all nodes, until they are taken"
    spot = f"{best.spot_share:.0%} of the paid time; {best.interruptions:.3g} interruptions; law: {best.law}"
    return {
        "rent": _rented(best),
        "plan": f"{best.plan.words}; {duration(best.step_s)} a step, checkpoint every {duration(best.interval_s)}",
        "time": ", ".join(times),
        "cost": ", ".join(costs),
        "split": ", ".join(split),
        "zones": zones if best.zones else "",
        "deadline": _kept(best.deadline_prob),
        "budget": _kept(best.budget_prob),
        "spot": spot if best.spot_share else "",
        "prices": _prices(best),
        "gain": "" if report.gain is None else _gain(report.gain),
    }


def _kept(chance: Estimate | None) -> str:
    if chance is None:
        return ""
    return f"kept with probability {prob(chance.value)}{f' (± {chance.error:.1g})' if chance.error else ''}"


def _gain(gain: GainFacts) -> str:
    low, high = gain.saved_share_interval
    against = f"{gain.against} ({_rented(gain.reference)})"
    return f"{gain.saved_share:.1%} of the cost {against}, {low:.1%} to {high:.1%} on fresh draws"


def _times_of(rent: RentFacts) -> dict[str, Estimate]:
    return {"p50": rent.time_p50_s, "p95": rent.time_p95_s, "mean": rent.time_mean_s}


def _costs_of(rent: RentFacts) -> dict[str, Estimate]:
    worst = "mean of the worst 5% (CVaR)"
    return {"mean": rent.cost_mean_usd, "p95": rent.cost_p95_usd, worst: rent.cost_cvar95_usd}


def _prices(best: RentFacts) -> str:
    if best.price_age_days is None:
        return "prices without a date"
    return f"prices of {best.price_day}, {best.price_age_days} days old"


def instances_words(rent: RentFacts) -> str:
    """Number and kind of the instances: "2 x p4d.24xlarge (16 a100-40gb)"."""
    return " + ".join(f"{part.count} x {part.instance} ({part.n_gpus} {part.device})" for part in rent.parts)


def _where(rent: RentFacts) -> str:
    return " + ".join(dict.fromkeys(part.where for part in rent.parts))


def _plain_time(figure: Estimate) -> str:
    return duration(figure.value) if isfinite(figure.value) else "never"


def _time(figure: Estimate, like: Estimate | None = None) -> str:
    """A time with its error, in the unit of `like`."""
    if not isfinite(figure.value):
        return "never"
    like_s = like.value if like is not None and isfinite(like.value) else None
    return duration(figure.value, _error(figure, True), like_s)


def _money(figure: Estimate, with_error: bool = True) -> str:
    return money(figure.value, _error(figure, with_error)) if isfinite(figure.value) else "without end"


def _error(figure: Estimate, with_error: bool) -> float | None:
    return figure.error if with_error and isfinite(figure.error) else None
