"""The bounded search finds what simulating everything finds."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest

from prism_jax.cloud.availability import WeibullSpells
from prism_jax.cloud.candidates import CloudCandidate, pays_for
from prism_jax.cloud.choice import CandidateOutcome, CloudChoice, SpotDraws, bound_of, search
from prism_jax.cloud.clusters import BestPlan
from prism_jax.cloud.completion import SpotTask
from prism_jax.cloud.offers import Offer
from prism_jax.cloud.policies import POLICIES
from prism_jax.cloud.requirements import CloudRequirements

LAWS = (WeibullSpells(4 * 3600.0, 0.75, 3600.0, name="calm"), WeibullSpells(3600.0, 0.9, 3600.0, name="wild"))
LEVEL = np.sort(np.random.default_rng(5).lognormal(0.0, 0.1, 200))


@dataclass(frozen=True)
class Plan:
    """As much of a `BestPlan` as a search looks at."""

    step_s: float


def candidates_of(seed: int, wish: CloudRequirements) -> list[CloudCandidate]:
    """A small catalogue: three machines in two zones each, on one to eight instances."""
    rng = np.random.default_rng(seed)
    found = []
    for machine in range(3):
        usd, step_s = rng.uniform(2.0, 40.0), rng.uniform(0.5, 8.0)
        offers = tuple(
            Offer("c", f"m{machine}", "gpu", 8, zone=zone, on_demand_usd_per_h=usd * f, spot_usd_per_h=usd * f * share)
            for zone, f, share in zip("ab", rng.uniform(0.9, 1.1, 2), rng.uniform(0.1, 1.2, 2), strict=True)
        )
        law = LAWS[int(rng.integers(2))]
        for count in (1, 2, 4, 8):
            seconds = step_s / count**0.9
            task = SpotTask.cut(wish.n_steps * seconds, None, 20.0, 300.0, 1e-7 * count, 1e-4)
            for policy in POLICIES:
                able = tuple(offer for offer in offers if pays_for(policy, offer))
                found.append(
                    CloudCandidate(
                        able, count, cast(BestPlan, Plan(seconds)), task, policy, law if policy.needs_spot else None
                    )
                )
    return found


def wish_of(seed: int) -> CloudRequirements:
    rng = np.random.default_rng([seed, 1])
    kind = seed % 4
    days, usd = rng.uniform(0.5, 4.0), rng.uniform(200.0, 3000.0)
    return CloudRequirements(
        n_steps=60_000,
        deadline_s=days * 86_400.0 if kind in (0, 2) else np.inf,
        budget_usd=usd if kind in (1, 2) else np.inf,
        prob=0.9,
        n_worlds=200,
        seed=seed,
    )


def names(choice: CloudChoice) -> tuple:
    return tuple((one.offer, one.candidate.count, one.candidate.policy.name) for one in choice.front)


@pytest.mark.parametrize("seed", range(4))
def test_search_is_exhaustive(seed):
    wish = wish_of(seed)
    own = candidates_of(seed, wish)
    quick, slow = search(own, SpotDraws(wish, LEVEL), wish), search(own, SpotDraws(wish, LEVEL), wish, everything=True)
    assert (quick.best is None) == (slow.best is None)
    if quick.best is not None and slow.best is not None:
        assert quick.best.value(wish) == slow.best.value(wish)
        assert quick.best.candidate is slow.best.candidate
    assert names(quick) == names(slow)
    assert len(quick.simulated) <= len(slow.simulated)


def test_bounds_hold_for_every_candidate():
    wish = wish_of(3)
    worlds = SpotDraws(wish, LEVEL)
    for one in candidates_of(3, wish):
        bound, outcome = bound_of(one, worlds.factors, wish), CandidateOutcome.of(one, worlds.run(one))
        assert bound.time_s <= outcome.mean_s
        assert bound.cost_usd <= outcome.mean_usd
        assert bound.late_s <= outcome.late_s


def test_reasons_and_kept_ones_are_all_candidates():
    wish = wish_of(2)
    own = candidates_of(2, wish)
    slow = search(own, SpotDraws(wish, LEVEL), wish, everything=True)
    kept = [one for one in slow.simulated if one.keeps(wish)]
    assert len(kept) + sum(slow.infeasible.values()) == len(own)


def test_same_seed_same_answer():
    wish = wish_of(1)
    first, second = (search(candidates_of(1, wish), SpotDraws(wish, LEVEL), wish) for _ in range(2))
    assert [one.mean_usd for one in first.front] == [one.mean_usd for one in second.front]


def test_dearer_money_scales_costs_and_leaves_the_choice():
    """Prices in another unit of money are the same choice."""
    wish = wish_of(3)
    own = candidates_of(3, wish)
    base = search(own, SpotDraws(wish, LEVEL), wish)
    other = search([_scaled(one, 7.0) for one in own], SpotDraws(wish, LEVEL), wish)
    assert [o.candidate.count for o in base.front] == [o.candidate.count for o in other.front]
    assert other.front[0].mean_usd == pytest.approx(7.0 * base.front[0].mean_usd)


def _scaled(one: CloudCandidate, factor: float) -> CloudCandidate:
    def dearer(offer: Offer) -> Offer:
        prices = {name: (getattr(offer, name) or 0.0) * factor for name in ("on_demand_usd_per_h", "spot_usd_per_h")}
        return replace(offer, **prices)

    return replace(one, offers=tuple(map(dearer, one.offers)))


def test_the_cheapest_zone_is_taken():
    wish = wish_of(3)
    worlds = SpotDraws(wish, LEVEL)
    for one in candidates_of(3, wish):
        ran = worlds.run(one)
        outcome = CandidateOutcome.of(one, ran)
        for offer in one.offers:
            prices = (one.count * (p or 0.0) for p in (offer.on_demand_usd_per_h, offer.spot_usd_per_h))
            assert outcome.mean_usd <= ran.cost_usd(*prices).mean() * (1 + 1e-9)
