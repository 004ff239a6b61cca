"""Importance weights say how close an approximation is: even where it is exact, heavy-tailed where it is too narrow."""

import numpy as np
import pytest
from scipy import stats

from inference.engine.laplace import GOOD_K, pareto_fit, smoothed_weights


def k_of(target, proposal, n: int = 4000, seed: int = 0) -> float:
    z = proposal.rvs(n, random_state=seed)
    return smoothed_weights(target.logpdf(z) - proposal.logpdf(z))[1]


@pytest.mark.parametrize("constant", [0.0, 1e5, -1e5])
def test_an_exact_approximation_has_even_weights_and_no_tail(constant):
    weight, k = smoothed_weights(np.full(1000, constant))
    np.testing.assert_array_equal(weight, np.full(1000, 1e-3))
    assert k < 0.0


def test_rounding_of_an_exact_approximation_is_no_tail():
    weight, k = smoothed_weights(1e-12 * np.random.default_rng(3).standard_normal(2000))
    np.testing.assert_allclose(weight, 1 / 2000, rtol=1e-9)
    assert k < GOOD_K


@pytest.mark.parametrize("shape", [-0.3, 0.05, 0.3, 0.7, 1.2])
def test_pareto_fit_recovers_the_shape_of_simulated_tails(shape):
    """The maximum likelihood estimate has sd (1 + k) / sqrt(n); five of them: false alarms below 1e-6 per shape."""
    n, scale = 4000, 2.5
    excess = np.sort(stats.genpareto(shape, scale=scale).rvs(n, random_state=11))
    k, sigma = pareto_fit(excess)
    sd = (1.0 + shape) / np.sqrt(n) if shape > -0.5 else 0.05
    prior = 10.0 / (n + 10.0) * abs(0.5 - shape)
    assert abs(k - shape) < 5.0 * sd + prior
    assert sigma == pytest.approx(scale, rel=5.0 * np.sqrt(2.0 * (1.0 + shape) / n))


def test_the_shape_does_not_depend_on_the_unit_of_the_weights():
    excess = np.sort(stats.genpareto(0.4).rvs(200, random_state=2))
    k, sigma = pareto_fit(excess)
    scaled = pareto_fit(1e-6 * excess)
    assert scaled[0] == pytest.approx(k, rel=1e-9)
    assert scaled[1] == pytest.approx(1e-6 * sigma, rel=1e-9)


def test_the_narrower_the_proposal_the_heavier_the_tail():
    """For normal laws of sd 1 and s < 1 the shape is 1 - s^2: .19, .51, .75, .91."""
    k = [k_of(stats.norm(), stats.norm(scale=s)) for s in (0.9, 0.7, 0.5, 0.3)]
    assert k == sorted(k)
    assert k[0] < GOOD_K < k[-1]


def test_a_wide_proposal_is_good():
    assert k_of(stats.norm(), stats.t(7, scale=1.3)) < 0.4


def test_weighted_draws_of_a_wide_proposal_have_the_moments_of_the_target():
    """Standard error of the mean of 4000 weighted draws is below .03; five of them."""
    z = stats.t.rvs(7, 0.5, 1.5, size=4000, random_state=5)
    weight, _ = smoothed_weights(stats.norm.logpdf(z, 1.0, 0.8) - stats.t.logpdf(z, 7, 0.5, 1.5))
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert weight @ z == pytest.approx(1.0, abs=0.15)
    assert np.sqrt(weight @ (z - weight @ z) ** 2) == pytest.approx(0.8, abs=0.15)


def test_draws_of_density_zero_have_weight_zero():
    log_ratio = np.random.default_rng(0).normal(0.0, 0.3, 1000)
    log_ratio[::2] = -np.inf
    weight, k = smoothed_weights(log_ratio)
    assert (weight[::2] == 0.0).all()
    assert (weight[1::2] > 0.0).all()
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert k < GOOD_K


@pytest.mark.parametrize(
    "bad", [[np.nan, 0.0, 1.0], [-np.inf, -np.inf, -np.inf], [np.inf, 0.0, 0.0]], ids=["nan", "nowhere", "infinite"]
)
def test_ratios_that_mean_nothing_have_an_infinite_shape(bad):
    weight, k = smoothed_weights(np.array(bad * 100))
    assert k == np.inf
    np.testing.assert_allclose(weight, 1.0 / 300)


@pytest.mark.parametrize("spread", [5.0, 50.0, 500.0, 5e4, 1e200])
@pytest.mark.parametrize("n", [25, 400, 8000])
def test_weights_that_overflow_are_finite_and_a_bad_fit(spread, n):
    """Warnings are errors: nothing may overflow on the way."""
    weight, k = smoothed_weights(spread * np.random.default_rng(7).standard_normal(n))
    assert np.isfinite(weight).all()
    assert weight.sum() == pytest.approx(1.0, abs=1e-12)
    assert k > GOOD_K


def test_a_tail_of_equal_weights_is_no_tail():
    log_ratio = np.zeros(1000)
    log_ratio[:500] = -1.0
    weight, k = smoothed_weights(log_ratio)
    assert k < 0.0
    assert weight.max() / weight.min() == pytest.approx(np.e)


def test_few_draws_are_weighted_without_smoothing():
    log_ratio = np.log(np.array([1.0, 2.0, 1.0]))
    np.testing.assert_allclose(smoothed_weights(log_ratio)[0], [0.25, 0.5, 0.25])
