"""The exact renewal form against its parts, against simulation, and against first-order lines."""

import jax
import numpy as np
import pytest

from prism_jax.horizon.run import best_interval, expected_time, growth

SETTINGS = [(w, rate) for w in (1e-6, 0.01, 0.3, 5.0) for rate in (1e-5, 0.003, 0.3, 2.0)]


def simulated_time(n_interval, interval, blocking, outage, rate, rng):
    """Wall time of one job, interval by interval."""
    total = 0.0
    for _ in range(n_interval):
        while True:
            alive = rng.exponential(1.0 / rate)
            if alive >= interval + blocking:
                total += interval + blocking
                break
            total += alive + outage_time(outage, rate, rng)
    return total


def outage_time(outage, rate, rng):
    total = 0.0
    while True:
        alive = rng.exponential(1.0 / rate)
        if alive >= outage:
            return total + outage
        total += alive


@pytest.mark.parametrize(("interval", "blocking", "outage", "rate"), [(1.0, 0.1, 0.2, 0.1), (0.5, 0.2, 0.5, 1.5)])
def test_it_is_the_mean_of_simulated_jobs(interval, blocking, outage, rate):
    rng = np.random.default_rng(1)
    times = [simulated_time(5, interval, blocking, outage, rate, rng) for _ in range(4000)]
    error = np.std(times) / np.sqrt(len(times))
    assert abs(np.mean(times) - expected_time(5 * interval, interval, blocking, outage, rate)) < 4.4 * error  # 1e-5


def test_published_shares_at_16384_gpus():
    """Share of useful time with checkpoints each 60 and each 5 minutes, restarts of 5 minutes, one interruption in 1.8 h."""
    share = 1.0 / expected_time(1.0, np.array([60.0, 5.0]), 0.0, 5.0, 1 / (1.8 * 60.0))
    assert share == pytest.approx([0.714, 0.933], abs=2e-3)


def test_without_interruptions_only_checkpoints_cost():
    assert expected_time(100.0, 10.0, 1.0, 7.0, 0.0) == pytest.approx(110.0, rel=1e-12)
    assert growth(np.array([0.0, 1e-12, 1e-3])) == pytest.approx([1.0, 1.0, np.expm1(1e-3) / 1e-3], rel=1e-12)


@pytest.mark.parametrize(("blocking", "rate"), SETTINGS)
def test_the_best_interval_is_that_of_a_fine_grid(blocking, rate):
    best = best_interval(blocking, rate)
    grid = expected_time(1.0, np.geomspace(best / 4.0, best * 4.0, 20_001), blocking, 3.0, rate)
    assert expected_time(1.0, best, blocking, 3.0, rate) <= grid.min() * (1.0 + 1e-9)


def test_the_best_interval_tends_to_young_and_to_one_per_rate():
    assert best_interval(1e-6, 1e-3) == pytest.approx(np.sqrt(2 * 1e-6 / 1e-3), rel=1e-4)
    assert best_interval(50.0, 1.0) == pytest.approx(1.0, rel=1e-12)
    assert best_interval(1.0, 0.0) == np.inf
    assert best_interval(0.0, 1.0) == 0.0


@pytest.mark.parametrize("argument", range(4))
def test_gradients_are_those_of_differences(argument):
    at = [1.3, 0.2, 0.4, 0.7]

    def time(x):
        return expected_time(1.0, *(x if i == argument else v for i, v in enumerate(at)))

    with jax.enable_x64(True):
        step = 1e-5
        central = (time(at[argument] + step) - time(at[argument] - step)) / (2 * step)
        assert jax.grad(time)(at[argument]) == pytest.approx(central, rel=1e-6)


@pytest.mark.parametrize("argument", range(2))
def test_the_best_interval_has_gradients(argument):
    at = [0.2, 0.7]

    def best(x):
        return best_interval(*(x if i == argument else v for i, v in enumerate(at)))

    with jax.enable_x64(True):
        central = (best(at[argument] + 1e-5) - best(at[argument] - 1e-5)) / 2e-5
        assert jax.grad(best)(at[argument]) == pytest.approx(central, rel=1e-6)
