"""Steps of the same fleet: what persists is shared along a row, what changes in time is not."""

import jax
import numpy as np
import pytest
from scipy.special import ndtri

from prism_jax.core.errors import DataError
from prism_jax.result.distribution import StepTimeDistribution, StepTimes
from prism_jax.simulate.predict import brute_force, predict
from prism_jax.simulate.replica_maximum import step_regimes
from prism_jax.variability.families import LogNormal
from prism_jax.variability.score_map import NormalScoreMap
from prism_jax.variability.tree import Stall, Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_job, make_program, network_varies

N_STEP = 8


def fleets(tree: Variability, n: int = 512, steps: int = N_STEP, **plan: object) -> StepTimeDistribution:
    return brute_force(make_program(tree, **plan), jax.random.key(3), n, steps_per_fleet=steps)


def test_one_step_per_fleet_is_drawn_as_ever() -> None:
    u = np.random.default_rng(0).random((100, 1))
    expected = NormalScoreMap.from_family(LogNormal(0.05))(ndtri(u))
    for ar1 in (0.0, 0.9):
        np.testing.assert_array_equal(step_regimes(LogNormal(0.05), ar1, u), expected)


@pytest.mark.parametrize("ar1", [-0.5, 0.0, 0.8])
def test_step_factors_have_the_family_at_every_step_and_the_autocorrelation_of_the_score(ar1: float) -> None:
    """Four standard errors of 200,000 pairs."""
    u = np.random.default_rng(1).random((40_000, 6))
    family = LogNormal(0.05)
    factor = step_regimes(family, ar1, u)
    score = (np.log(factor) - np.log(factor).mean()) / np.log(factor).std()
    assert np.mean(score[:, 1:] * score[:, :-1]) == pytest.approx(ar1, abs=4.0 / np.sqrt(200_000))
    for p in (0.05, 0.5, 0.95):
        exact = NormalScoreMap.from_family(family)(ndtri(np.array([p])))[0]
        assert np.quantile(factor[:, -1], p) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("parts", [compute_varies(gpu=LogNormal(0.02)), network_varies(node=LogNormal(0.05))])
def test_what_persists_is_the_same_in_every_step_of_a_fleet(parts) -> None:
    found = fleets(Variability("t", parts), tp=2, dp=4).by_fleet_s
    assert found.shape == (64, N_STEP)
    np.testing.assert_allclose(found, np.repeat(found[:, :1], N_STEP, axis=1), rtol=1e-6)
    assert found[:, 0].std() > 0.0


@pytest.mark.parametrize(
    "tree",
    [
        Variability("t", compute_varies(call=LogNormal(0.05))),
        Variability("t", network_varies(regime=LogNormal(0.2))),
        Variability("t", step=LogNormal(0.05)),
    ],
    ids=["call", "network", "step"],
)
def test_what_changes_in_time_is_independent_from_step_to_step(tree: Variability) -> None:
    """Means of 8 steps vary by 1 / sqrt 8 of what steps do; 256 fleets know a standard deviation to 4.4 %."""
    found = fleets(tree, 2048, tp=2, dp=2).by_fleet_s
    assert found.std() > 0.0
    assert found.mean(axis=1).std() * np.sqrt(N_STEP) / found.std() == pytest.approx(1.0, abs=0.2)


def test_a_correlated_step_factor_makes_sums_vary_more_and_steps_no_more() -> None:
    plain, slow = (fleets(Variability("t", step=LogNormal(0.05), step_ar1=r), 4096, dp=2) for r in (0.0, 0.9))
    for p in (0.05, 0.5, 0.95):
        assert slow.quantile(p) == pytest.approx(plain.quantile(p), rel=6e-3)
    sums = [result.by_fleet_s.sum(axis=1).std() for result in (plain, slow)]
    lags = np.arange(1, N_STEP)
    exact = np.sqrt(1.0 + 2.0 * ((1.0 - lags / N_STEP) * 0.9**lags).sum())
    assert sums[1] / sums[0] == pytest.approx(exact, rel=0.15)


def test_the_distribution_of_a_step_does_not_depend_on_how_many_belong_together() -> None:
    one, many = (fleets(EVERYTHING, 4096, steps, tp=2, dp=2) for steps in (1, 4))
    for p in (0.5, 0.9):
        error = np.hypot(one.mc_error(p), many.mc_error(p))
        assert many.quantile(p) == pytest.approx(one.quantile(p), abs=5.0 * error)
    assert one.by_fleet_s.shape == (4096, 1)
    assert many.by_fleet_s.shape == (1024, 4)


def test_flat_samples_are_those_of_the_fleets_where_nothing_is_rare() -> None:
    found = fleets(
        Variability("t", compute_varies(gpu=LogNormal(0.02), call=LogNormal(0.02)), step=LogNormal(0.01)), dp=2
    )
    np.testing.assert_array_equal(np.sort(found.by_fleet_s, axis=None), found.samples_s)


def test_stalls_hit_single_steps_of_fleets() -> None:
    """A stall in 5 % of steps adds its own length on average; five standard errors."""
    found = fleets(Variability("t", stalls=(Stall(step_prob=0.05, mean_fraction=1.0),)), 20_000, dp=2)
    added = found.by_fleet_s / found.deterministic_s - 1.0
    assert (added > 0.0).mean() == pytest.approx(0.05, abs=5.0 * np.sqrt(0.05 / 20_000))
    assert added.mean() == pytest.approx(0.05, abs=5.0 * np.sqrt(0.1 / 20_000))
    assert found.mean_s == pytest.approx(found.by_fleet_s.mean(), rel=0.02)


def test_a_fleet_of_several_steps_gives_no_order_statistic() -> None:
    """Its steps are not independent."""
    tree = Variability("t", compute_varies(gpu=LogNormal(0.02)))
    assert fleets(tree, 1024, 1, dp=2).guarantee().kind == "order_statistic"
    assert fleets(tree, 1024, 4, dp=2).guarantee().kind == "randomisations"


def test_the_symmetric_method_says_that_it_knows_no_fleets() -> None:
    job, key = make_job(EVERYTHING, dp=4), jax.random.key(0)
    result = predict(job, key=key, n_samples=128)
    assert result.by_fleet_s.shape == (len(result.samples_s), 1)
    assert isinstance(result, StepTimes)
    with pytest.raises(DataError, match="symmetric method draws another fleet"):
        predict(job, key=key, steps_per_fleet=2)
    found = predict(job, key=key, n_samples=64, method="brute_force", steps_per_fleet=2)
    assert found.by_fleet_s.shape == (32, 2)
