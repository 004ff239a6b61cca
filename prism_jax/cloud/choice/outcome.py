"""Outcome: a candidate in its worlds: time, money, probabilities, with Monte Carlo errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..._typing import Floats
from ...horizon.outcome import N_BATCH, Estimate
from ..completion.simulate import Ran
from ..offers import Offer
from .candidate import Candidate
from .wish import Wish

TAIL = 0.95


@dataclass(frozen=True)
class Outcome:
    """A candidate with what became of it; [world].

    Attributes:
        offer: of the candidate's, the one at which it costs least.
        time_s, cost_usd: infinite where the job is never done.
    """

    candidate: Candidate
    offer: Offer
    ran: Ran
    time_s: Floats
    cost_usd: Floats

    @classmethod
    def of(cls, candidate: Candidate, ran: Ran) -> Outcome:
        """At the cheapest offer."""
        offer, _ = candidate.cheapest(ran)
        count = candidate.count
        cost = ran.cost_usd(*(count * (price or 0.0) for price in (offer.on_demand_usd_per_h, offer.spot_usd_per_h)))
        return cls(candidate, offer, ran, ran.time_s, np.where(np.isfinite(ran.time_s), cost, np.inf))

    @property
    def mean_usd(self) -> float:
        """Expected cost."""
        return float(self.cost_usd.mean())

    @property
    def mean_s(self) -> float:
        """Expected wall time."""
        return float(self.time_s.mean())

    @property
    def late_s(self) -> float:
        """p95 of the wall time."""
        return _quantile(self.time_s, TAIL)

    def prob_by(self, deadline_s: float) -> Estimate:
        """P(done by then)."""
        return _share(np.asarray(self.time_s <= deadline_s, float))

    def prob_within(self, budget_usd: float) -> Estimate:
        """P(it costs no more)."""
        return _share(np.asarray(self.cost_usd <= budget_usd, float))

    def keeps(self, wish: Wish) -> bool:
        """Whether deadline and budget are kept with the probability that is asked for."""
        sure = [self.prob_by(wish.deadline_s), self.prob_within(wish.budget_usd)]
        return all(one.value >= wish.prob for one in sure) and np.isfinite(self.late_s)

    def value(self, wish: Wish) -> float:
        """What is to be small."""
        return self.late_s if wish.wants_time else self.mean_usd

    def time_quantile(self, p: float) -> Estimate:
        """Of the wall time, seconds."""
        return _estimate(self.time_s, lambda x: _quantile(x, p))

    def cost_quantile(self, p: float) -> Estimate:
        """Of the cost, USD."""
        return _estimate(self.cost_usd, lambda x: _quantile(x, p))

    def cost_mean(self) -> Estimate:
        """Expected cost, USD."""
        return _estimate(self.cost_usd, lambda x: float(x.mean()))

    def time_mean(self) -> Estimate:
        """Expected wall time, seconds."""
        return _estimate(self.time_s, lambda x: float(x.mean()))

    def cost_cvar(self, p: float = TAIL) -> Estimate:
        """Mean cost of the dearest `1 - p` of the worlds, USD."""
        return _estimate(self.cost_usd, lambda x: float(np.sort(x)[int(np.ceil(p * len(x))) - 1 :].mean()))


def _quantile(values: Floats, p: float) -> float:
    """Without interpolation: worlds that never end may stand beside it."""
    return float(np.sort(values)[min(int(np.ceil(p * len(values))) - 1, len(values) - 1)])


def _share(kept: Floats) -> Estimate:
    return Estimate(float(kept.mean()), float(kept.std() / np.sqrt(len(kept))))


def _estimate(values: Floats, figure: Callable[[Floats], float]) -> Estimate:
    parts = [figure(part) for part in np.array_split(values, N_BATCH)]
    value = figure(values)
    spread = float(np.std(parts, ddof=1)) if np.isfinite(parts).all() else float("inf")
    return Estimate(value, spread / np.sqrt(N_BATCH))
