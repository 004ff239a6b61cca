"""CloudReport: which instances to rent, how many, spot or not, for a deadline and a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ....cloud.choice.wish import WorkDone
from ....horizon.outcome import Estimate
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord
from ..study import PlanFacts


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
    plan: PlanFacts
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
    picture: ClassVar[str] = "prism_jax.plot.cloud:draw"

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
        from ...text.horizon.cloud import lines

        return lines(self)
