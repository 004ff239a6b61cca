"""The detector of slow phases on simulated steps whose changes are known."""

import numpy as np
import pytest

from prism_jax.watch.detector import N_LEARN, SlowPhaseDetector, StepNoise

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


def test_ordinary_steps_raise_no_alarm():
    assert changes(steps(4000)) == []


def test_steps_that_depend_on_each_other_raise_no_alarm():
    assert changes(steps(4000, sd=0.01, ar1=0.7)) == []


def test_single_and_double_stalls_are_no_change():
    step_s = steps(600)
    step_s[100::50] *= 1.3
    step_s[101::100] *= 1.25
    assert changes(step_s) == []


def test_slow_drift_moves_the_level_without_an_alarm():
    step_s = steps(2000) * np.linspace(1.0, 1.15, 2000)
    assert changes(step_s) == []


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
