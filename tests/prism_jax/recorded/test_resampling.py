"""Step times redrawn from recorded ones: exact where nothing varies, honest about what was not seen."""

from collections.abc import Callable

import numpy as np
import pytest

from prism_jax.recorded.prediction import TracePrediction, resampled

REFITS = {"n_refit": 40, "per_refit": 100, "seed": 0}


def test_equal_steps_are_repeated() -> None:
    np.testing.assert_allclose(resampled(np.full(7, 2.5), **REFITS), 2.5, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_steps_can_be_redrawn(n: int) -> None:
    drawn = resampled(np.arange(1.0, n + 1.0), **REFITS)
    assert drawn.shape == (40, 100)
    assert np.isfinite(drawn).all()
    assert (drawn > 0).all()


def test_unit_and_order_of_the_steps_do_not_matter() -> None:
    step_s = np.random.default_rng(1).lognormal(0.0, 0.2, 30)
    np.testing.assert_allclose(resampled(1e3 * step_s[::-1], **REFITS), 1e3 * resampled(step_s, **REFITS), rtol=1e-9)


def test_one_step_in_n_plus_one_is_longer_than_all_recorded_ones() -> None:
    """By exchangeability; the share over refits is the mean of 4,000 Beta(1, n) weights, five standard errors."""
    step_s = np.random.default_rng(2).lognormal(0.0, 0.2, 19)
    drawn = resampled(step_s, n_refit=4000, per_refit=50, seed=0)
    error = np.sqrt((0.05 * 0.95 / 21 + 0.05 * 0.95 / 50) / 4000)
    assert (drawn > step_s.max()).mean() == pytest.approx(1 / 20, abs=5 * error)
    assert (drawn < step_s.min()).mean() == pytest.approx(1 / 20, abs=5 * error)


@pytest.mark.parametrize("p", [0.5, 0.95])
@pytest.mark.parametrize("draw", [np.random.Generator.normal, np.random.Generator.laplace])
def test_intervals_cover_quantiles_of_the_next_steps(draw: Callable[..., np.ndarray], p: float) -> None:
    """18 steps from 18: 300 times. A coverage of 0.88 leaves 80 to 97 % with probability 1e-4."""
    rng, held = np.random.default_rng(3), 0
    for seed in range(300):
        fitted, fresh = np.exp(0.1 * draw(rng, size=(2, 18)))
        prediction = TracePrediction(resampled(fitted, n_refit=40, per_refit=100, seed=seed))
        low, high = prediction.expected_interval(p, 18, 0.9)
        held += low <= np.quantile(fresh, p) <= high
    assert 0.80 <= held / 300 <= 0.97
