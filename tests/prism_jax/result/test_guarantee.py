"""Confidence bounds hold as often as they say."""

import numpy as np
import pytest
from scipy import stats

from prism_jax.core.errors import DataError
from prism_jax.result.distribution import independent_bound, order_statistic_bound, randomised_bound, smallest_sample


@pytest.mark.parametrize(
    ("p", "confidence", "n"), [(0.95, 0.95, 59), (0.99, 0.99, 459), (0.95, 0.99, 90), (0.99, 0.95, 299), (0.5, 0.75, 2)]
)
def test_smallest_sample_is_that_of_wilks(p: float, confidence: float, n: int) -> None:
    """59 for 95/95: Wilks 1941, the table every reliability handbook prints."""
    assert smallest_sample(p, confidence) == n
    assert 1 - p**n >= confidence > 1 - p ** (n - 1)


def test_too_few_samples_are_refused_with_the_number_needed() -> None:
    with pytest.raises(DataError, match="58 samples .* 59 can"):
        order_statistic_bound(np.arange(58.0), 0.95, 0.95)


@pytest.mark.parametrize(
    ("n", "p", "confidence"), [(59, 0.95, 0.95), (200, 0.95, 0.99), (1000, 0.5, 0.9), (500, 0.99, 0.99)]
)
def test_order_statistic_is_the_first_that_bounds(n: int, p: float, confidence: float) -> None:
    """The k-th of n uniforms is Beta(k, n + 1 - k): it must exceed p often enough, and the one before must not."""
    k = round(order_statistic_bound(np.arange(1.0, n + 1), p, confidence).bound_s)
    assert stats.beta.sf(p, k, n + 1 - k) >= confidence
    assert stats.beta.sf(p, k - 1, n + 2 - k) < confidence


def test_order_statistic_covers_as_often_as_promised() -> None:
    """4,000 samples of 200: coverage at least 90 %, binomial 1e-4 limit; the order of the samples does not matter."""
    rng = np.random.default_rng(0)
    samples = rng.exponential(size=(4000, 200))
    covered = sum(order_statistic_bound(s, 0.95, 0.9).bound_s >= -np.log(0.05) for s in samples)
    assert covered >= stats.binom.ppf(1e-4, 4000, 0.9)


def test_bound_of_steps_leaves_half_of_the_misses_over() -> None:
    steps = np.arange(1000.0)
    assert independent_bound(steps, 0.95, 0.99).bound_s == order_statistic_bound(steps, 0.95, 0.995).bound_s
    assert independent_bound(steps, 0.95, 0.99).confidence == 0.99
    with pytest.raises(DataError, match="103 samples .* 104 can"):
        independent_bound(np.arange(103.0), 0.95, 0.99)


def shifted(shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples of eight randomisations of 512 strata of the unit interval, each shifted, and all together; sorted."""
    batches = (np.arange(512) + 0.5) / 512 + shift[:, None]
    return np.sort(batches, axis=None), batches


def test_bound_from_randomisations_covers_as_often_as_promised() -> None:
    """Normal errors of the level, 0.5 % each: Student's t is exact up to the strata; binomial 1e-4 limit from below."""
    rng = np.random.default_rng(1)
    bounds = [randomised_bound(*shifted(0.005 * rng.standard_normal(8)), 0.9, 0.99).bound_s for _ in range(4000)]
    assert np.sum(np.array(bounds) >= 0.9) >= stats.binom.ppf(1e-4, 4000, 0.99)


def test_randomisations_that_differ_too_much_bound_nothing() -> None:
    with pytest.raises(DataError, match="simulate more"):
        randomised_bound(*shifted(np.linspace(-0.1, 0.1, 8)), 0.95, 0.99)


def test_sentence_says_what_is_guaranteed() -> None:
    bound = order_statistic_bound(np.linspace(1.0, 2.0, 1000), 0.95, 0.99)
    assert bound.sentence().startswith("with 99% confidence at least 95% of steps take at most 1.9")


def test_sentence_does_not_round_a_high_quantile_to_all_steps() -> None:
    assert "at least 99.9% of steps" in order_statistic_bound(np.arange(9000.0), 0.999, 0.99).sentence()
