"""A job in any of several zones: where it is, what it pays and loses, and which zones are worth a look."""

from dataclasses import replace
from typing import cast

import jax
import numpy as np
import pytest

from prism_jax.cloud.availability import SeveralZones, WeibullSpells
from prism_jax.cloud.candidates import CloudCandidate, Zones, several_zones
from prism_jax.cloud.choice import CandidateOutcome, SpotDraws, bound_of
from prism_jax.cloud.clusters import BestPlan
from prism_jax.cloud.completion import Ran, SpotTask, simulate
from prism_jax.cloud.offers import Offer
from prism_jax.cloud.policies import POLICIES
from prism_jax.cloud.requirements import CloudRequirements
from prism_jax.cloud.spot import Paths, together

HORIZON_S = 20 * 86_400.0
LAW = WeibullSpells(3 * 3600.0, 0.75, 2 * 3600.0, lone_per_node_s=1e-5)
NEVER = Paths(np.full((1, 400), np.inf), np.zeros((1, 400), np.int32), np.ones((1, 400)), 4)
TASK = SpotTask.cut(86_400.0, 1800.0, 20.0, 300.0, 0.0)
WISH = CloudRequirements(n_steps=1000, deadline_s=4 * 86_400.0, prob=0.5, n_worlds=400)


def drawn(seed: int, law: WeibullSpells = LAW) -> Paths:
    return law.draw(4, 400, HORIZON_S, np.random.default_rng(seed))


def ran(paths: Paths, policy: str = "spot") -> Ran:
    return simulate(TASK, paths, POLICIES.named(policy), np.ones(paths.n_worlds), key=jax.random.key(0))


def same(one: Ran, other: Ran) -> None:
    for name in ("time_s", "spot_s", "on_demand_s", "n_lost"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-5)


def up_s(paths: Paths) -> np.ndarray:
    ends = np.minimum(paths.until_s, HORIZON_S)
    return (np.diff(ends, axis=0, prepend=0.0) * paths.usable).sum(axis=0)


@pytest.mark.parametrize("policy", ["spot", "spot_with_fallback", "mixture"])
@pytest.mark.parametrize("place", [0, 1])
def test_several_zones_of_which_one_has_capacity_are_that_zone(place: int, policy: str) -> None:
    """Losses that are made good at once are among its."""
    own = drawn(0)
    zones = [NEVER, NEVER]
    zones[place] = own
    same(ran(together(zones, HORIZON_S), policy), ran(own, policy))


def test_zones_that_do_the_same_are_one() -> None:
    own = drawn(1)
    same(ran(together([own, own, own], HORIZON_S)), ran(own))


def test_two_zones_have_nodes_whenever_one_of_them_has() -> None:
    one, other = drawn(2), drawn(3)
    both = together([one, other], HORIZON_S)
    assert (up_s(both) >= np.maximum(up_s(one), up_s(other)) - 1e-6).all()
    assert up_s(both).mean() / HORIZON_S == pytest.approx(1.0 - (1.0 - 0.6) ** 2, abs=0.02)


def test_the_price_is_that_of_the_zone_in_use() -> None:
    found = ran(together([NEVER, drawn(4)], HORIZON_S, (1.0, 2.5)))
    np.testing.assert_allclose(found.spot_s, 2.5 * ran(drawn(4)).spot_s, rtol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_a_job_is_where_a_slow_walk_finds_it(seed: int) -> None:
    """Second by second: it stays while its zone is up, else takes the first that is, and each loss is one."""
    rng = np.random.default_rng(seed)
    n, horizon = 3, 60
    paths = []
    for _ in range(n):
        until_s = np.sort(rng.integers(1, horizon, (8, 1)), axis=0).astype(float)
        paths.append(Paths(until_s, rng.integers(0, 2, (8, 1)).astype(np.int32), np.ones((8, 1)), 1))
    both = together(paths, float(horizon), (1.0, 2.0, 3.0))
    home, n_lost = -1, 0
    for second in range(horizon):
        at = second + 0.5
        up = [bool(one.n_up[min(int((one.until_s[:, 0] <= at).sum()), 7), 0]) for one in paths]
        own = paths[home]
        gone = (own.until_s[:, 0] == second) & (own.n_up[:, 0] == 0) & (np.diff(own.until_s[:, 0], prepend=0.0) == 0.0)
        n_lost += home >= 0 and (not up[home] or bool(gone.any()))
        home = home if home >= 0 and up[home] else up.index(True) if any(up) else -1
        row = int((both.until_s[:, 0] <= at).sum())
        assert both.n_up[row, 0] == (home >= 0)
        assert home < 0 or both.price[row, 0] == home + 1.0
    usable = both.n_up[both.until_s[:, 0] < horizon, 0]
    assert n_lost == int(((usable[:-1] == 1) & (usable[1:] == 0)).sum() + _ends_at_last(both, horizon))


def _ends_at_last(both: Paths, horizon: int) -> int:
    """A loss after which nothing comes before the horizon."""
    before = both.until_s[:, 0] < horizon
    last = int(before.sum()) - 1
    return int(last >= 0 and both.n_up[last, 0] == 1 and both.n_up[last + 1, 0] == 0)


def offers_of(spot: dict[str, float], region: str = "r", on_demand: float = 30.0) -> list[Offer]:
    return [
        Offer("c", "m", "gpu", 8, region, zone, on_demand_usd_per_h=on_demand, spot_usd_per_h=usd)
        for zone, usd in spot.items()
    ]


def candidate(zones: Zones, policy: str = "spot") -> CloudCandidate:
    return CloudCandidate(
        (zones.offer,), 2, cast(BestPlan, None), TASK, POLICIES.named(policy), zones.law, zones=zones.offers
    )


def found(*offers: Offer, policy: str = "spot") -> list[Zones]:
    return several_zones(dict.fromkeys(offers, LAW), POLICIES.named(policy))


def test_the_cheapest_zones_come_first_and_in_every_number_up_to_four() -> None:
    zones = found(*offers_of({"a": 9.0, "b": 3.0, "c": 6.0, "d": 7.0, "e": 8.0}))
    assert [[offer.zone for offer in one.offers] for one in zones] == [list("bc"), list("bcd"), list("bcde")]
    assert zones[1].offer.spot_usd_per_h == 3.0
    assert zones[1].offer.where == "3 zones of r"
    assert zones[1].law.factors == pytest.approx((1.0, 2.0, 7.0 / 3.0))


def test_offers_of_another_region_machine_or_no_zone_are_not_joined() -> None:
    a, b = offers_of({"a": 3.0, "b": 4.0})
    assert found(a, replace(b, region="s")) == found(a, replace(b, instance="n")) == found(a, replace(b, zone="")) == []


def test_zones_that_are_dearer_throughout_are_left_out_since_they_cost_more_in_every_world() -> None:
    cheap, dear = offers_of({"a": 3.0, "b": 5.0}), offers_of({"x": 4.0, "y": 5.0}, "s")
    (kept,) = found(*dear, *cheap)
    assert kept.offers == tuple(cheap)
    (other,) = found(*dear)
    worlds = SpotDraws(WISH, np.ones(1))
    one, two = (CandidateOutcome.of(candidate(zones), worlds.run(candidate(zones))) for zones in (kept, other))
    np.testing.assert_array_equal(one.time_s, two.time_s)
    assert (one.cost_usd <= two.cost_usd).all()


def test_a_dearer_price_on_demand_counts_where_it_is_paid() -> None:
    cheap, dear = offers_of({"a": 3.0, "b": 5.0}), offers_of({"x": 4.0, "y": 5.0}, "s", on_demand=20.0)
    assert len(found(*cheap, *dear)) == 1
    assert len(found(*cheap, *dear, policy="spot_with_fallback")) == 2


@pytest.mark.parametrize("policy", ["spot", "spot_with_fallback", "mixture"])
def test_bounds_hold_in_several_zones(policy: str) -> None:
    (zones,) = found(*offers_of({"a": 3.0, "b": 5.0}), policy=policy)
    worlds, own = SpotDraws(WISH, np.ones(1)), candidate(zones, policy)
    bound, outcome = bound_of(own, worlds.factors, WISH), CandidateOutcome.of(own, worlds.run(own))
    assert bound.time_s <= outcome.mean_s
    assert bound.cost_usd <= outcome.mean_usd
    assert bound.late_s <= outcome.late_s


def test_figures_of_zones_that_cannot_be_are_refused() -> None:
    from prism_jax.core.errors import SpecError

    for factors in ((1.0,), (1.0, 0.0), (1.0, float("nan"))):
        with pytest.raises(SpecError, match="factors"):
            SeveralZones((LAW, LAW), factors=factors)
