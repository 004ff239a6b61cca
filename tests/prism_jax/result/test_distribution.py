"""Distributions of step time: quantiles, their errors, and guarantees."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri

from prism_jax.core.errors import DataError
from prism_jax.result.distribution import (
    StepTimeDistribution,
    StepTimes,
    html_table,
    independent_bound,
    level_error,
    order_statistic_bound,
    quantile,
    quantile_error,
    randomised_bound,
    smallest_sample,
    stated_error,
)


def distribution(method: str = "symmetric", n: int = 8000) -> StepTimeDistribution:
    rng = np.random.default_rng(0)
    samples = rng.gamma(20.0, 0.1, n)
    return StepTimeDistribution(np.sort(samples), np.sort(samples.reshape(8, -1), axis=1), 1.5, method, n, 0.05 * n)


def test_quantiles_and_probabilities_turn_each_other_round() -> None:
    result = distribution()
    for p in (0.05, 0.5, 0.95, 0.99):
        assert result.prob_above(result.quantile(p)) == pytest.approx(1 - p, abs=2e-4)
    assert result.prob_slower(0.2) == result.prob_above(1.2 * result.quantile(0.5))
    assert result.prob_above(0.0) == 1.0
    assert result.prob_above(1e9) == 0.0


def test_moments_are_those_of_the_samples() -> None:
    result = distribution()
    assert result.mean_s == pytest.approx(2.0, abs=0.02)
    assert result.std_s == pytest.approx(0.447, abs=0.02)


def test_error_of_a_quantile_is_that_of_independent_batches() -> None:
    """Median of n samples: 1 / (2 f sqrt n); 7 degrees of freedom, so within a factor 2.5."""
    result = distribution()
    expected = 0.5 / (0.9 * np.sqrt(8000))  # density 0.90 at the median of Gamma(20, 0.1)
    assert expected / 2.5 < result.mc_error(0.5) < 2.5 * expected


def test_brute_force_guarantees_by_order_statistic() -> None:
    """Its steps are independent; symmetric samples are not."""
    result = distribution("brute_force")
    bound = result.guarantee(0.95, 0.99)
    assert bound == independent_bound(result.samples_s, 0.95, 0.99)
    assert bound.bound_s > result.quantile(0.95)
    assert distribution().guarantee().kind == "randomisations"


def test_a_guarantee_that_too_few_steps_cannot_give_is_refused() -> None:
    with pytest.raises(DataError, match="800 samples .* can"):
        distribution("brute_force", 800).guarantee(0.999, 0.99)


def test_guarantee_lies_above_the_quantile_and_rises_with_confidence() -> None:
    bounds = [distribution().guarantee(0.95, c).bound_s for c in (0.9, 0.99, 0.999)]
    assert distribution().quantile(0.95) < bounds[0] < bounds[1] < bounds[2]


def test_interval_is_a_student_interval_around_the_quantile() -> None:
    """The stated error is half the interval of 95% over 1.96, but for what interpolation leaves."""
    result = distribution()
    low, high = result.interval(0.95, 0.95)
    assert (low + high) / 2 == pytest.approx(result.quantile(0.95))
    assert high - low == pytest.approx(2 * 1.959964 * result.mc_error(0.95), rel=0.01)
    narrow = np.ptp(result.interval(0.95, 0.9))
    assert (high - low) / narrow == pytest.approx(2.144787 / 1.761310, rel=1e-5)  # t of 14 degrees of freedom


def test_a_distribution_answers_as_step_times_do() -> None:
    result = distribution()
    assert isinstance(result, StepTimes)
    np.testing.assert_array_equal(result.by_fleet_s[:, 0], result.samples_s)


def test_tables_for_notebooks_are_escaped() -> None:
    result = StepTimeDistribution(np.ones(8), np.ones((8, 2)), 1.0, "symmetric", 8, 1.0, notes=("p95 < 2 & rising",))
    html = result._repr_html_()
    assert "p95 &lt; 2 &amp; rising" in html
    assert "<td>p95</td>" in html
    assert html_table("<b>", ("a",), [("<script>",)]) == (
        "<div><table><caption>&lt;b&gt;</caption><thead><tr><th>a</th></tr></thead>"
        "<tbody><tr><td>&lt;script&gt;</td></tr></tbody></table></div>"
    )


# --- Confidence bounds hold as often as they say ---------------------------------------------------------------------


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
    """4,000 samples of 200: coverage at least 90%, binomial 1e-4 limit; the order of the samples does not matter."""
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
    """Normal errors of the level, 0.5% each: Student's t is exact up to the strata; binomial 1e-4 limit from below."""
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


# --- Monte carlo -----------------------------------------------------------------------------------------------------
# Stated errors are right: quantiles of strata and of independent samples, and the share of repeats within 1.96.


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
    """Median over 400 repeats against sqrt(p (1 - p) / n) of independent samples; its own error is 1.5%."""
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
    """1,500 repeats of a log-normal step: between 92 and 98%; at 95% one of these tests fails by chance in a million."""
    rng = np.random.default_rng(2)
    truth, inside = np.exp(0.3 * ndtri(p)), 0
    for _ in range(1500):
        batches = np.sort(np.exp(0.3 * rng.standard_normal((n_batch, 4096 // n_batch))), axis=1)
        samples = np.sort(batches, axis=None)
        inside += abs(quantile(samples, p) - truth) <= 1.96 * stated_error(samples, batches, p)
    assert stats.binom.cdf(0.92 * 1500, 1500, 0.95) < 1e-6
    assert 0.92 <= inside / 1500 <= 0.98


@pytest.mark.parametrize("p", [95, -0.1, float("nan")])
def test_percent_are_refused_with_the_probability(p: float) -> None:
    found = StepTimeDistribution(np.sort(np.arange(16.0)), np.arange(16.0).reshape(8, 2), 0.0, "symmetric", 16, 1.0)
    for answer in (found.quantile, found.mc_error, found.interval, found.guarantee):
        with pytest.raises(DataError, match="it is a probability, between 0 and 1"):
            answer(p)
    with pytest.raises(DataError, match="The 95th percentile is p = 0.95"):
        found.quantile(95)
    with pytest.raises(DataError, match="level = 0.9"):
        found.interval(0.5, 90)
    assert (found.quantile(0.0), found.quantile(1.0)) == (0.0, 15.0)
