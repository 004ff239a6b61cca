"""Time of the steps to come: limits of the law, what the log shows, and how much wider than independent steps it is."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.watch.remaining import HORIZON, DriftLaw, Traits, shipped_law, time_left

STILL = DriftLaw(0.0, 1e9, 1e-12, 0.0, 0.0, 0.0, 0.0, levels=(0.05, 0.5, 0.95), errors=(-1.645, 0.0, 1.645))


def steps(n=200, sd=0.004, seed=0):
    return 2.0 * np.exp(sd * np.random.default_rng(seed).standard_normal(n))


def ones(values):
    return np.ones(len(values), int)


def test_equal_steps_take_their_number_times_one():
    left = time_left(np.full(50, 2.0), np.ones(50, int), 1000, replace(STILL, drift=0.0))
    assert left.p50_s == pytest.approx(2000.0)
    assert left.independent_p5_s == pytest.approx(2000.0)


def test_the_time_scales_with_the_unit_of_the_steps():
    whole, half = (time_left(scale * steps(), ones(steps()), 900) for scale in (1.0, 0.5))
    for name in ("p5_s", "p50_s", "p95_s", "independent_p5_s", "independent_p95_s"):
        assert getattr(half, name) == pytest.approx(0.5 * getattr(whole, name))


def test_without_drift_the_interval_is_that_of_two_means():
    """Error of a mean of n steps and of one of m: sd (1/n + 1/m)^(1/2)."""
    log_s = np.log(steps(100))
    traits = Traits(100.0, 2.0, 0.004, 0.0, 0.0, 0.0)
    assert STILL.variances(traits, 400.0).steps == pytest.approx(0.004**2 * (1 / 100 + 1 / 400))
    found = Traits.of(np.exp(log_s))
    assert found.log_sd == pytest.approx(0.004, rel=0.25)  # a robust spread of 100 steps: 12 %
    assert found.level_s == pytest.approx(2.0, rel=0.002)  # five standard errors


def test_correlated_steps_say_less():
    free, tied = (STILL.variances(Traits(100.0, 2.0, 0.004, r, 0.0, 0.0), 400.0).steps for r in (0.0, 0.5))
    assert tied == pytest.approx(3.0 * free)


def test_drift_does_not_average_out():
    law = replace(STILL, drift=0.002)
    traits = Traits.of(steps())
    near, far = (law.variances(traits, n).drift for n in (1e3, 1e9))
    assert near == pytest.approx(0.002**2)
    assert far == near
    growing = replace(law, horizon_power=0.5).variances(traits, HORIZON * len(steps()) * 4.0)
    assert growing.drift == pytest.approx(4.0 * 0.002**2)


def test_stalls_go_on_as_far_as_the_log_outweighs_others():
    traits = Traits(100.0, 2.0, 0.004, 0.0, 0.02, 0.0)
    assert replace(STILL, stalls_of_others=100.0).location(traits) == pytest.approx(0.01)
    assert replace(STILL, stalls_of_others=0.0).location(traits) == pytest.approx(0.02)


def test_one_stall_is_no_level_and_a_change_is_told():
    calm = steps(60)
    stalled = calm.copy()
    stalled[30] *= 1.5
    assert Traits.of(stalled).level_s == pytest.approx(Traits.of(calm).level_s, rel=1e-3)
    assert Traits.of(stalled).stalls == pytest.approx(0.5 / 60, rel=0.1)
    changed = np.r_[calm[:30], 1.05 * calm[30:]]
    assert Traits.of(changed).change == pytest.approx(np.log(1.05), rel=0.1)


def test_the_shipped_law_is_wider_than_independent_steps_and_longer_above():
    left = time_left(steps(), ones(steps()), 1800)
    assert left.p95_s - left.p5_s > 5.0 * (left.independent_p95_s - left.independent_p5_s)
    assert left.p95_s - left.p50_s > left.p50_s - left.p5_s
    assert sorted(shipped_law().errors) == list(shipped_law().errors)


def test_its_interval_holds_nine_tenths_of_runs_that_follow_it():
    """2,000 runs whose level moves by the law; a share of .9 is known to .0067, limits at 4.5 of it."""
    rng, law = np.random.default_rng(1), replace(STILL, drift=0.003, errors=(-1.645, 0.0, 1.645))
    inside = 0
    for _ in range(2000):
        first = np.exp(0.004 * rng.standard_normal(40))
        later_s = 360 * np.exp(0.003 * rng.standard_normal() + 0.004 / 360**0.5 * rng.standard_normal())
        left = time_left(first, np.ones(40, int), 360, law)
        inside += left.p5_s <= later_s <= left.p95_s
    assert inside / 2000 == pytest.approx(0.9, abs=0.03)


def test_entries_of_several_steps_count_once():
    one = time_left(steps(), ones(steps()), 900)
    ten = time_left(steps(), 10 * ones(steps()), 9000)
    assert ten.variance_shares == pytest.approx(one.variance_shares)
    assert (ten.p5_s, ten.p50_s) == pytest.approx((10.0 * one.p5_s, 10.0 * one.p50_s))


def test_too_few_entries_and_no_steps_are_refused():
    with pytest.raises(DataError, match="2 step times"):
        time_left(np.ones(2), np.ones(2, int), 10)
    with pytest.raises(DataError, match="0 steps left"):
        time_left(np.ones(5), np.ones(5, int), 0)
