"""Replicated data: uniform where the model is right, and telling where it is wrong; scores against closed forms."""

import numpy as np
import pytest
from scipy import stats

from inference.engine.diagnostics import Checks

N_OBS, N_DRAW = 2000, 999


def checks(*, wide: float = 1.0, shift: float = 0.0, seed: int = 0) -> Checks:
    """Measured N(0, 1), replicated N(shift, wide^2)."""
    rng = np.random.default_rng(seed)
    return Checks(rng.standard_normal(N_OBS), shift + wide * rng.standard_normal((N_DRAW, N_OBS)), "seconds")


def normal_crps(x: np.ndarray, sd: float) -> np.ndarray:
    """Of a forecast N(0, sd^2); Gneiting and Raftery, JASA 102 (2007), section 4.2."""
    z = x / sd
    return sd * (z * (2.0 * stats.norm.cdf(z) - 1.0) + 2.0 * stats.norm.pdf(z) - 1.0 / np.sqrt(np.pi))


def test_pit_of_a_calibrated_model_is_uniform():
    """False-alarm rate 1e-4; PIT values lie on a grid of 1/999, which moves the distance by less than .001."""
    found = checks()
    assert ((found.pit >= 0.0) & (found.pit <= 1.0)).all()
    assert stats.kstest(found.pit, "uniform").pvalue > 1e-4
    assert found.as_dict()["pit_ks_p_value"] > 1e-4  # type: ignore[operator]


@pytest.mark.parametrize("wrong", [{"wide": 0.5}, {"wide": 2.0}, {"shift": 0.5}])
def test_pit_of_a_wrong_model_is_not_uniform(wrong):
    assert stats.kstest(checks(**wrong).pit, "uniform").pvalue < 1e-12


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("wide", [0.5, 1.0, 2.0])
def test_coverage_is_that_of_the_normal_law(level, wide):
    """Five standard errors of 2,000 observations (6e-7), and .003 for quantiles of 999 draws."""
    edge = wide * stats.norm.ppf(0.5 + level / 2.0)
    expected = 1.0 - 2.0 * stats.norm.sf(edge)
    error = 5.0 * float(np.sqrt(expected * (1.0 - expected) / N_OBS)) + 0.003
    assert checks(wide=wide).coverage(level) == pytest.approx(expected, abs=error)


def test_crps_is_that_of_the_normal_law():
    """Evenly spaced quantiles as draws: no Monte Carlo error, and 1/n of bias."""
    n = 4001
    draws = 2.0 * stats.norm.ppf((np.arange(n) + 0.5) / n)
    measured = np.linspace(-6.0, 6.0, 25)
    found = Checks(measured, np.broadcast_to(draws[:, None], (n, len(measured))), "s").crps()
    assert found == pytest.approx(normal_crps(measured, 2.0).mean(), rel=1e-3)


def test_crps_does_not_depend_on_the_order_of_draws():
    found = checks()
    mixed = np.random.default_rng(1).permutation(found.predicted, axis=0)
    assert Checks(found.measured, mixed, "s").crps() == pytest.approx(found.crps(), rel=1e-12)


def test_the_right_spread_has_the_best_crps():
    """In expectation .564 at the truth, .589 and .611 at half and at twice the spread."""
    right = checks().crps()
    assert right < checks(wide=0.5).crps()
    assert right < checks(wide=2.0).crps()


def test_crps_of_a_point_is_its_absolute_error():
    measured = np.array([1.0, 2.0, 4.0])
    found = Checks(measured, np.full((5, 3), 2.0), "s")
    assert found.crps() == pytest.approx(1.0)
    assert found.as_dict()["crps_of_median"] == pytest.approx(1.0)


def test_ties_count_half():
    assert Checks(np.array([1.0]), np.array([[0.0], [1.0], [1.0], [2.0]]), "s").pit == pytest.approx([0.5])


def test_figures_are_plain_values():
    found = checks().as_dict()
    assert found["what"] == "seconds"
    assert found["n"] == N_OBS
    assert {"coverage_50", "coverage_90"} <= set(found)
    assert all(isinstance(value, (str, int, float)) for value in found.values())
    assert found["crps"] < found["crps_of_median"]  # type: ignore[operator]
