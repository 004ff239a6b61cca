"""Stated errors are right: quantiles of strata and of independent samples, and the share of repeats within 1.96."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from prism_jax.result.distribution import level_error, quantile, quantile_error, stated_error


@pytest.mark.parametrize("p", [0.1, 0.5, 0.95, 0.99])
def test_quantile_of_strata_is_that_of_their_distribution(p: float) -> None:
    strata = (np.arange(1000) + 0.5) / 1000
    assert quantile(strata, p) == pytest.approx(p, abs=1e-12)
    assert quantile(strata, p) == pytest.approx(np.quantile(strata, p, method="hazen"), abs=1e-12)


def test_quantiles_beyond_the_samples_are_the_outermost() -> None:
    assert quantile(np.array([1.0, 2.0]), [0.0, 0.5, 1.0]).tolist() == [1.0, 1.5, 2.0]
    assert quantile(np.array([3.0]), 0.7) == 3.0


def test_samples_that_do_not_differ_have_no_error() -> None:
    assert stated_error(np.ones(64), np.ones((8, 8)), 0.95) == 0.0


def test_level_error_is_that_of_shares() -> None:
    """Median over 400 repeats against sqrt(p (1 - p) / n) of independent samples; its own error is 1.5 %."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        batches = np.sort(rng.random((16, 100)), axis=1)
        found.append(level_error(np.sort(batches, axis=None), batches, 0.9) ** 2)
    assert np.mean(found) == pytest.approx(0.9 * 0.1 / 1600, rel=0.08)


def test_error_in_seconds_is_that_of_the_level_over_the_density() -> None:
    rng = np.random.default_rng(1)
    batches = np.sort(rng.random((8, 2000)), axis=1)
    samples = np.sort(batches, axis=None)
    assert quantile_error(3.0 * samples, 3.0 * batches, 0.8) == pytest.approx(
        3.0 * level_error(samples, batches, 0.8), rel=0.1
    )


@pytest.mark.parametrize("n_batch", [8, 16])
@pytest.mark.parametrize("p", [0.5, 0.95, 0.99])
def test_truth_lies_within_196_errors_in_95_percent_of_repeats(n_batch: int, p: float) -> None:
    """1,500 repeats of a log-normal step: between 92 and 98 %; at 95 % one of these tests fails by chance in a million."""
    rng = np.random.default_rng(2)
    truth, inside = np.exp(0.3 * ndtri(p)), 0
    for _ in range(1500):
        batches = np.sort(np.exp(0.3 * rng.standard_normal((n_batch, 4096 // n_batch))), axis=1)
        samples = np.sort(batches, axis=None)
        inside += abs(quantile(samples, p) - truth) <= 1.96 * stated_error(samples, batches, p)
    assert stats.binom.cdf(0.92 * 1500, 1500, 0.95) < 1e-6
    assert 0.92 <= inside / 1500 <= 0.98
