"""What a table tells of a fleet's shares at best, and how shares that are said are counted."""

import numpy as np
import pytest
from scipy.stats import binom

from experiments.fit_fleet.named import below_bars, compared, ideal, simulated


def test_who_knows_the_spreads_knows_shares_to_a_few_points_and_no_better() -> None:
    """Ranges hold the truth in 90% of 80 fleets (fewer by chance once in 10,000); some middles are off by more than 3 points."""
    fleets = [simulated(seed, planted=True) for seed in range(100, 196)]
    found = [ideal(fleet, np.random.default_rng(0), 1000) for fleet in fleets if fleet.has_nodes]
    assert len(found) == 80
    ranges = [one for one in found if one.is_range]
    assert sum(one.holds for one in ranges) > binom.ppf(1e-4, len(ranges), 0.9)
    assert 0.025 < np.median([one.half for one in found]) < 0.045
    assert 0 < sum(one.off > 0.03 for one in found) < 30


def test_shares_of_the_truth_sum_to_one_in_every_spelling() -> None:
    for seed in range(6):
        fleet = simulated(seed, planted=True)
        assert sum(fleet.shares.values()) == pytest.approx(1.0)
        assert fleet.has_nodes == ("node" in fleet.shares)


def test_a_range_is_judged_by_whether_it_holds_the_truth_and_a_number_by_its_points() -> None:
    truth = {"gpu": 0.60, "node": 0.30, "run": 0.10}
    exact = {name: {"median": share, "p5": share - 0.01, "p95": share + 0.01} for name, share in truth.items()}
    found = compared(truth, exact)
    assert (found.off, found.half, found.holds) == (0.0, pytest.approx(0.01), True)
    wide = exact | {"node": {"median": 0.25, "p5": 0.20, "p95": 0.31}}
    found = compared(truth, wide)
    assert (found.off, found.half, found.holds) == (pytest.approx(0.05), pytest.approx(0.055), True)
    assert compared(truth | {"node": 0.32}, wide).holds is False
    assert not below_bars([compared(truth, wide), None])
    assert below_bars([compared(truth | {"gpu": 0.64}, exact)])
    assert below_bars([compared(truth | {"node": 0.32}, wide)] * 4)
