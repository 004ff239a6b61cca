"""Tails of systems that were not measured: identities of the draws, closed forms of what is made of them."""

import numpy as np
import pytest
from scipy.stats import norm

from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.result.tails import TailDraws, tail_draws

LEVELS = (0.6, 0.95, 0.97, 0.99, 0.999)


def normal_steps(sd: float = 0.02) -> StepTimeDistribution:
    """Steps of mean 5 s, quantiles of a normal law."""
    samples = 5.0 * (1.0 + sd * norm.ppf((np.arange(8 * 1024) + 0.5) / (8 * 1024)))
    return StepTimeDistribution(samples, np.sort(samples.reshape(1024, 8).T, axis=1), 5.0, "symmetric", 8192, 300.0)


@pytest.mark.parametrize("n_devices", [8, 512, 16_384])
@pytest.mark.parametrize("p", LEVELS)
def test_the_quantile_of_the_preset_is_the_median_of_the_draws(n_devices: int, p: float):
    times = normal_steps()
    drawn_s = tail_draws(n_devices).quantiles(times, p)
    assert np.median(drawn_s) == pytest.approx(times.quantile(p), rel=1e-3)
    low, high = np.quantile(drawn_s, (0.05, 0.95))
    assert low < times.quantile(p) < high


def test_below_the_median_nothing_is_open():
    assert tail_draws(64).quantiles(normal_steps(), 0.3) == pytest.approx(normal_steps().quantile(0.3))


def test_without_a_spread_between_systems_nothing_changes():
    times, same = normal_steps(), TailDraws(np.zeros((4, 2)))
    assert same.prob_slower(times, 0.02) == pytest.approx(norm.sf(1.0), abs=5e-4)
    assert same.guarantee(times, 0.95, 0.99).bound_s == pytest.approx(times.guarantee(0.95, 0.99).bound_s)


def test_twice_the_excess_is_twice_as_far_and_as_likely_as_half():
    times, twice = normal_steps(), TailDraws(np.full((4, 2), np.log(2.0)))
    for p in LEVELS:
        assert twice.quantiles(times, p) == pytest.approx(5.0 + 2.0 * (times.quantile(p) - 5.0))
    assert twice.prob_slower(times, 0.06) == pytest.approx(norm.sf(1.5), abs=5e-4)


def test_a_chance_is_the_mean_over_systems():
    times, mixed = normal_steps(), TailDraws(np.log([[2.0, 2.0], [0.5, 0.5]]))
    assert mixed.prob_slower(times, 0.02) == pytest.approx(0.5 * (norm.sf(0.5) + norm.sf(2.0)), abs=5e-4)


def test_a_guarantee_holds_on_that_share_of_systems():
    times, tails = normal_steps(), tail_draws(512)
    bound = tails.guarantee(times, 0.95, 0.9)
    assert (tails.quantiles(times, 0.95) <= bound.bound_s).mean() == pytest.approx(0.9, abs=0.02)
    assert bound.bound_s > times.guarantee(0.95, 0.9).bound_s
    assert "on an unmeasured system" in bound.sentence()


def test_both_levels_move_together():
    """As far as measured systems do: their correlation of p95 and p99 is .8 to .95."""
    assert 0.7 < np.corrcoef(np.clip(tail_draws(512).log_ratio, -3.0, 3.0).T)[0, 1] < 0.97
