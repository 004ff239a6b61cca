"""Sums of steps of one fleet: closed forms, and what K independent draws would say."""

import numpy as np
import pytest

from prism_jax.horizon.steps import StepSum, variance_of_sum


@pytest.mark.parametrize("ar1", [-0.5, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("n_steps", [1, 2, 7, 60])
def test_variance_of_a_sum_is_the_sum_of_covariances(ar1: float, n_steps: int):
    lag = np.abs(np.subtract.outer(np.arange(n_steps), np.arange(n_steps)))
    assert variance_of_sum(2.0, ar1, n_steps) == pytest.approx(2.0 * (ar1**lag).sum(), rel=1e-9)


def test_what_persists_is_all_that_is_left_of_a_million_steps():
    law = StepSum(5.0, 4.9, 0.05, 0.02, 0.9, 0.1)
    assert law.variance(1) == pytest.approx(0.05**2 + 0.02**2 + 0.1**2)
    assert law.variance(10**6) ** 0.5 == pytest.approx(0.05 * 10**6, rel=1e-3)


def test_draws_have_the_moments_of_the_law():
    """Mean and variance of 200,000 draws; limits at 4.5 standard errors: one false alarm in 70,000."""
    law = StepSum(5.0, 4.9, 0.3, 0.02, 0.9, 0.4)
    draws = law.draws_s(50, 200_000, np.random.default_rng(0))
    assert abs(draws.mean() - 250.0) < 4.5 * (law.variance(50) / len(draws)) ** 0.5
    assert draws.var() == pytest.approx(law.variance(50), rel=4.5 * (2.1 / len(draws)) ** 0.5)
    assert (StepSum.fixed(2.0).draws_s(7, 3, np.random.default_rng(0)) == 14.0).all()
