"""Candidate: so many instances of a shape under a policy, with the prices of an hour of all of them in every place."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np

from ..._typing import Floats
from ..availability.base import Availability
from ..clusters.mixed import Part
from ..clusters.step_times import BestPlan
from ..completion.simulate import Ran
from ..completion.task import Task
from ..offers import Offer
from ..policies.base import Policy


@dataclass(frozen=True)
class Candidate:
    """One thing that may be rented, before it is simulated.

    Attributes:
        offers: of one shape and law of availability, that have what the policy needs.
        count: instances.
        best: parallel plan and step time there.
        task: in intervals.
        law: of spot capacity; None where the policy needs none.
        parts: of a mix of kinds, whose one offer has the price of all; empty for one kind.
        zones: that the job moves between, the first that has all nodes; its one offer has the spot price of the first, and `law`
            the others' over it. Empty: it stays in one.
    """

    offers: tuple[Offer, ...]
    count: int
    best: BestPlan
    task: Task
    policy: Policy
    law: Availability | None
    parts: tuple[Part, ...] = ()
    zones: tuple[Offer, ...] = ()

    @property
    def least_usd_per_s(self) -> float:
        """Lower bound of what a second of work on all nodes costs, wherever it is done."""
        on_demand, spot = self.prices()
        found = inf
        for use in self.policy.uses:
            if use.pace > 0.0:
                paid = sum(
                    (part * price for part, price in ((use.on_demand, on_demand), (use.spot, spot)) if part > 0.0)
                )
                found = min(found, float(np.min(paid / use.pace)))
        return found / 3600.0

    def prices(self) -> tuple[Floats, Floats]:
        """USD per hour of all instances [offer], on demand and on spot; NaN where not offered."""
        return tuple(  # type: ignore[return-value]
            self.count * np.array([nan if price is None else price for price in column])
            for column in zip(*((o.on_demand_usd_per_h, o.spot_usd_per_h) for o in self.offers), strict=True)
        )

    def cheapest(self, ran: Ran) -> tuple[Offer, float]:
        """The offer at which these worlds cost least on average, and its expected cost, USD."""
        on_demand, spot = self.prices()
        hours = np.array([ran.on_demand_s.mean(), ran.spot_s.mean()]) / 3600.0
        cost = sum(h * price for h, price in zip(hours, (on_demand, spot), strict=True) if h > 0.0)
        row = int(np.argmin(np.broadcast_to(cost, len(self.offers))))
        return self.offers[row], float(np.broadcast_to(cost, len(self.offers))[row])


def pays_for(policy: Policy, offer: Offer) -> bool:
    """Whether an offer has the prices that a policy needs."""
    needed = ((policy.needs_on_demand, offer.on_demand_usd_per_h), (policy.needs_spot, offer.spot_usd_per_h))
    return all(price is not None and isfinite(price) for wanted, price in needed if wanted)
