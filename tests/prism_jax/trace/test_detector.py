"""Slow phases of a running job: found, acted upon or not, and the time that is left."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.slow_phases.run import least_s, paid_s
from prism_jax.core.errors import DataError
from prism_jax.trace.detector import N_LEARN, SlowPhaseDetector, StepNoise
from prism_jax.watch.phases import act_at
from prism_jax.watch.remaining import HORIZON, DriftLaw, Traits, shipped_law, time_left

SHIFT = 0.10


def steps(n, sd=0.005, seed=0, ar1=0.0):
    """[step] seconds around 2 s, with a first-order autoregression."""
    rng = np.random.default_rng(seed)
    e = sd * np.sqrt(1.0 - ar1**2) * rng.standard_normal(n)
    x = np.zeros(n)
    for i in range(1, n):
        x[i] = ar1 * x[i - 1] + e[i]
    return 2.0 * np.exp(x)


def changes(step_s, **settings):
    detector = SlowPhaseDetector(**settings)
    return [change for seconds in step_s if (change := detector.update(seconds)) is not None]


@pytest.mark.parametrize("seed", range(20))
def test_a_shift_of_ten_percent_is_found_at_its_third_step_with_onset_and_size(seed):
    step_s = steps(100, seed=seed)
    step_s[60:] *= 1.0 + SHIFT
    (change,) = changes(step_s)
    assert (change.onset, change.told) == (60, 62)
    assert np.expm1(change.log_size) == pytest.approx(SHIFT, abs=0.02)


def stalled():
    step_s = steps(600)
    step_s[100::50] *= 1.3
    step_s[101::100] *= 1.25
    return step_s


QUIET = {
    "ordinary steps": lambda: steps(4000),
    "steps that depend on each other": lambda: steps(4000, sd=0.01, ar1=0.7),
    "single and double stalls": stalled,
    "slow drift": lambda: steps(2000) * np.linspace(1.0, 1.15, 2000),
}


@pytest.mark.parametrize("kind", QUIET)
def test_no_alarm_is_raised(kind):
    assert changes(QUIET[kind]()) == []


def test_a_phase_that_ends_gives_a_change_back():
    step_s = steps(200)
    step_s[80:120] *= 1.2
    up, down = changes(step_s)
    assert (up.onset, down.onset) == (80, 120)
    assert up.log_size == pytest.approx(-down.log_size, abs=0.02)


def test_the_first_steps_after_a_restart_are_named_and_raise_no_alarm():
    step_s = steps(100)
    step_s[60:63] *= 1.04
    detector = SlowPhaseDetector()
    told = [detector.update(seconds, restarted=index == 60) for index, seconds in enumerate(step_s)]
    assert not any(told)
    assert detector.settled == [60, 61, 62]


def test_steps_after_an_evaluation_inside_a_step_settle_too():
    step_s = steps(100)
    step_s[60] *= 3.0
    step_s[61:64] *= 1.05
    detector = SlowPhaseDetector()
    assert not any(map(detector.update, step_s))
    assert detector.settled == [61, 62, 63]


def test_memory_does_not_grow_with_the_log():
    detector = SlowPhaseDetector()
    for seconds in steps(500, sd=0.03):
        detector.update(seconds)
    assert len(detector._weight) <= 24


def test_scale_of_time_does_not_matter():
    step_s = steps(100)
    step_s[50:] *= 1.1
    (one,), (thousand,) = changes(step_s), changes(step_s * 1e3)
    assert (one.onset, one.told) == (thousand.onset, thousand.told)
    assert one.log_size == pytest.approx(thousand.log_size, abs=1e-9)


def test_the_spread_is_learnt_despite_a_stall():
    step_s = steps(N_LEARN, sd=0.01, seed=3)
    step_s[5] *= 4.0
    assert StepNoise.learnt(np.log(step_s)).log_sd == pytest.approx(0.01, rel=0.6)


# --- Ski rental: identities and the competitive ratio ----------------------------------------------------------------


def test_it_acts_when_the_loss_reaches_the_cost():
    lost_s = np.full(10, 3.0)
    assert act_at(lost_s, 9.0) == 2
    assert act_at(lost_s, 30.1) is None


@pytest.mark.parametrize("cost_s", [1.0, 60.0, 600.0])
def test_it_pays_at_most_twice_the_best_decision_and_one_step(cost_s):
    rng = np.random.default_rng(0)
    for _ in range(500):
        lost_s = rng.exponential(rng.exponential(10.0), int(rng.integers(1, 300)))
        assert paid_s(lost_s, cost_s) <= 2.0 * least_s(lost_s, cost_s) + lost_s.max() + 1e-9


def test_the_ratio_of_two_is_reached():
    lost_s = np.full(1000, 1.0)
    assert paid_s(lost_s, 1000.0) / least_s(lost_s, 1000.0) == 2.0


# --- Time left -------------------------------------------------------------------------------------------------------
# Time of the steps to come: limits of the law, what the log shows, and how much wider than independent steps it is.


STILL = DriftLaw(0.0, 1e9, 1e-12, 0.0, 0.0, 0.0, 0.0, levels=(0.05, 0.5, 0.95), errors=(-1.645, 0.0, 1.645))


def time_left_steps(n=200, sd=0.004, seed=0):
    return 2.0 * np.exp(sd * np.random.default_rng(seed).standard_normal(n))


def left_of(step_s, n_left, *law, per_entry=1):
    """The time of steps to come after entries of so many steps each."""
    return time_left(step_s, np.full(len(step_s), per_entry), n_left, *law)


def test_equal_steps_take_their_number_times_one():
    left = left_of(np.full(50, 2.0), 1000, replace(STILL, drift=0.0))
    assert left.p50_s == pytest.approx(2000.0)
    assert left.independent_p5_s == pytest.approx(2000.0)


def test_the_time_scales_with_the_unit_of_the_steps():
    whole, half = (left_of(scale * time_left_steps(), 900) for scale in (1.0, 0.5))
    for name in ("p5_s", "p50_s", "p95_s", "independent_p5_s", "independent_p95_s"):
        assert getattr(half, name) == pytest.approx(0.5 * getattr(whole, name))


def test_without_drift_the_interval_is_that_of_two_means():
    """Error of a mean of n steps and of one of m: sd (1/n + 1/m)^(1/2)."""
    log_s = np.log(time_left_steps(100))
    traits = Traits(100.0, 2.0, 0.004, 0.0, 0.0, 0.0)
    assert STILL.variances(traits, 400.0).steps == pytest.approx(0.004**2 * (1 / 100 + 1 / 400))
    found = Traits.of(np.exp(log_s))
    assert found.log_sd == pytest.approx(0.004, rel=0.25)  # a robust spread of 100 steps: 12%
    assert found.level_s == pytest.approx(2.0, rel=0.002)  # five standard errors


def test_correlated_steps_say_less():
    free, tied = (STILL.variances(Traits(100.0, 2.0, 0.004, r, 0.0, 0.0), 400.0).steps for r in (0.0, 0.5))
    assert tied == pytest.approx(3.0 * free)


def test_drift_does_not_average_out():
    law = replace(STILL, drift=0.002)
    traits = Traits.of(time_left_steps())
    near, far = (law.variances(traits, n).drift for n in (1e3, 1e9))
    assert near == pytest.approx(0.002**2)
    assert far == near
    growing = replace(law, horizon_power=0.5).variances(traits, HORIZON * len(time_left_steps()) * 4.0)
    assert growing.drift == pytest.approx(4.0 * 0.002**2)


def test_stalls_go_on_as_far_as_the_log_outweighs_others():
    traits = Traits(100.0, 2.0, 0.004, 0.0, 0.02, 0.0)
    assert replace(STILL, stalls_of_others=100.0).location(traits) == pytest.approx(0.01)
    assert replace(STILL, stalls_of_others=0.0).location(traits) == pytest.approx(0.02)


def test_one_stall_is_no_level_and_a_change_is_told():
    calm = time_left_steps(60)
    stalled = calm.copy()
    stalled[30] *= 1.5
    assert Traits.of(stalled).level_s == pytest.approx(Traits.of(calm).level_s, rel=1e-3)
    assert Traits.of(stalled).stalls == pytest.approx(0.5 / 60, rel=0.1)
    changed = np.r_[calm[:30], 1.05 * calm[30:]]
    assert Traits.of(changed).change == pytest.approx(np.log(1.05), rel=0.1)


def test_the_shipped_law_is_wider_than_independent_steps_and_longer_above():
    left = left_of(time_left_steps(), 1800)
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
        left = left_of(first, 360, law)
        inside += left.p5_s <= later_s <= left.p95_s
    assert inside / 2000 == pytest.approx(0.9, abs=0.03)


def test_entries_of_several_steps_count_once():
    one = left_of(time_left_steps(), 900)
    ten = left_of(time_left_steps(), 9000, per_entry=10)
    assert ten.variance_shares == pytest.approx(one.variance_shares)
    assert (ten.p5_s, ten.p50_s) == pytest.approx((10.0 * one.p5_s, 10.0 * one.p50_s))


def test_too_few_entries_and_no_steps_are_refused():
    with pytest.raises(DataError, match="2 step times"):
        left_of(np.ones(2), 10)
    with pytest.raises(DataError, match="0 steps left"):
        left_of(np.ones(5), 0)
