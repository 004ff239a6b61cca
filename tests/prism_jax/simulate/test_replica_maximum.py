"""The slowest of many replicas, and fleets whose GPUs are known."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtri
from scipy.stats import qmc

from prism_jax.core.errors import DataError
from prism_jax.result.distribution import StepTimeDistribution, StepTimes
from prism_jax.simulate.importance import effective_tail, importance_design, scrambled_sobol
from prism_jax.simulate.predict import brute_force, predict
from prism_jax.simulate.replica_maximum import (
    AlikeReplicas,
    Shared,
    each_apart,
    finish,
    latin_hypercube,
    maximum_quantile,
    stalled,
    step_regimes,
    step_samples,
    stratified,
)
from prism_jax.variability.families import CONSTANT, LogNormal, Normal
from prism_jax.variability.score_map import NormalScoreMap
from prism_jax.variability.tree import Stall, Variability
from tests.support.jobs import EVERYTHING, compute_varies, make_job, make_program, network_varies

ONE_SCORE = Shared(np.zeros(1), ((CONSTANT, 1.0),), CONSTANT, (), 8, np.zeros(1), CONSTANT)
GRID = (np.arange(4000) + 0.5) / 4000


def test_maximum_of_uniform_columns_is_a_beta() -> None:
    """Quantile u of the maximum of n uniforms is u^(1/n)."""
    u = np.array([0.05, 0.5, 0.95])
    for n in (1, 8):
        np.testing.assert_allclose(maximum_quantile(GRID, np.ones(GRID.size), n, u), u ** (1 / n), atol=2e-4)


def test_weights_stand_for_repeated_columns() -> None:
    rng = np.random.default_rng(0)
    times, weight = rng.random(4000), rng.integers(1, 4, 4000)
    u = np.linspace(0.01, 0.99, 50)
    got = maximum_quantile(times, weight.astype(float), 3, u)
    np.testing.assert_allclose(got, maximum_quantile(np.repeat(times, weight), np.ones(weight.sum()), 3, u), atol=1e-3)


def test_every_step_has_a_network_regime_of_its_own() -> None:
    """Columns without spread: the step's distribution is the regime's, far into its tail."""
    family, scores = LogNormal(0.3), np.array([-2.5, -0.7, 0.7, 2.0, 3.3])
    shared = replace(ONE_SCORE, scores=scores, regime=((family, 2.0), (CONSTANT, 0.0)), end_s=np.zeros(5))
    time_s = 1.0 + shared.factor(scores)[:, None] * np.ones((5, 64))
    samples = step_samples(time_s, np.ones(64), 16, shared, 1 << 14, np.random.default_rng(0))
    for p in (0.05, 0.5, 0.95, 0.99, 0.999):
        assert np.quantile(samples, p) == pytest.approx(1.0 + float(family.ppf_normal(ndtri(p))), rel=2e-3)


def test_known_replicas_multiply_the_distribution_function() -> None:
    """Seven uniform columns and a known replica that is uniform on (0.5, 1): F(t) = t^7 (2 t - 1)."""
    rng = np.random.default_rng(0)
    known = each_apart((0.5 + 0.5 * GRID)[None, None])
    samples = step_samples(GRID[None], np.ones(GRID.size), 7, ONE_SCORE, 1 << 14, rng, known)
    for t in (0.8, 0.9, 0.97):
        assert (samples <= t).mean() == pytest.approx(t**7 * (2 * t - 1), abs=0.01)


def test_other_replicas_count_as_often_as_there_are_traced_or_not() -> None:
    """Seven uniform columns and three that are uniform on (0.5, 1): F(t) = t^7 (2 t - 1)^3."""
    other = AlikeReplicas((0.5 + 0.5 * GRID)[None], np.ones(GRID.size), 3)
    for time_s in (GRID[None], jnp.asarray(GRID[None], float)):
        own = other._replace(
            time_s=other.time_s if isinstance(time_s, np.ndarray) else jnp.asarray(other.time_s, float)
        )
        found = np.asarray(
            step_samples(time_s, np.ones(GRID.size), 7, ONE_SCORE, 1 << 14, np.random.default_rng(0), [own])
        )
        for t in (0.9, 0.97):
            assert (found <= t).mean() == pytest.approx(t**7 * (2 * t - 1) ** 3, abs=0.01)


def test_step_factor_and_call_of_the_last_exchange_have_their_spread() -> None:
    rng = np.random.default_rng(0)
    shared = replace(ONE_SCORE, step=LogNormal(0.05), end_call=Normal(0.1))
    samples = finish(np.full(1 << 14, 10.0), np.full(1 << 14, 2.0), shared, rng)
    assert samples.mean() == pytest.approx(10.0, rel=1e-4)
    assert samples.std() == pytest.approx(np.hypot(10.0 * 0.05, 2.0 * 0.1), rel=0.02)


def test_stalls_have_their_probability_and_mean() -> None:
    """P(T > t) = prob exp(-(t - 1) / mean) for a step of one second; two kinds compound."""
    one = stalled(np.ones(1 << 14), 0.1, 0.5)
    for t in (1.2, 2.0):
        assert (one > t).mean() == pytest.approx(0.1 * np.exp(-(t - 1.0) / 0.5), rel=0.03)
    assert one.mean() == pytest.approx(1.05, rel=5e-3)
    shared = replace(ONE_SCORE, stalls=(Stall(0.1, 0.0, 0.5), Stall(0.0, 0.02, 0.2)))
    both = finish(np.ones(1 << 14), np.zeros(1 << 14), shared, np.random.default_rng(0))
    assert both.mean() == pytest.approx(1.05 * (1.0 + (1 - 0.98**8) * 0.2), rel=0.01)


def test_any_number_of_kinds_of_stall_counts() -> None:
    shared = replace(ONE_SCORE, stalls=(Stall(0.05, 0.0, 0.3),) * 9)
    samples = finish(np.ones(1 << 14), np.zeros(1 << 14), shared, np.random.default_rng(0))
    assert samples.mean() == pytest.approx((1 + 0.05 * 0.3) ** 9, rel=0.02)


def test_latin_hypercube_has_one_point_per_cell_and_uncorrelated_coordinates() -> None:
    points = latin_hypercube(5, 4096, np.random.default_rng(0))
    for row in points:
        np.testing.assert_array_equal(np.sort((row * 4096).astype(int)), np.arange(4096))
    assert np.abs(np.corrcoef(points) - np.eye(5)).max() < 5 / 64
    assert (np.diff(stratified(100, np.random.default_rng(0))) > 0).all()


@pytest.mark.parametrize("n_lane", [1, 2, 6])
@pytest.mark.parametrize("n_replica", [1, 8, 512])
def test_importance_weights_make_a_standard_normal_again(n_lane: int, n_replica: int) -> None:
    """Weighted moments of every coordinate, and the probability of a far tail in one of them."""
    design = importance_design(8, 2048, n_lane, n_replica, np.array([0.8, 0.6]), np.ones(n_lane), 3)
    weight, score = design.weight.ravel(), design.peak_score.transpose(1, 2, 0, 3).reshape(2 * n_lane, -1)
    assert weight.mean() == pytest.approx(1.0, abs=0.02)
    assert weight.min() > 0.0
    for z in score:
        assert np.average(z, weights=weight) == pytest.approx(0.0, abs=0.08)
        assert np.average(z**2, weights=weight) == pytest.approx(1.0, abs=0.12)
        assert np.average(z > 1.5, weights=weight) == pytest.approx(stats.norm.sf(1.5), rel=0.25)


@pytest.mark.parametrize(("n", "dimension", "seed"), [(2, 1, 0), (64, 33, 5), (1024, 7, 1 << 45), (16, 900, 3)])
def test_points_are_those_of_scipy(n: int, dimension: int, seed: int) -> None:
    points = qmc.Sobol(dimension, scramble=True, rng=np.random.default_rng(seed)).random(n)
    np.testing.assert_array_equal(scrambled_sobol(n, dimension, seed), points)


def test_no_direction_means_no_shift() -> None:
    design = importance_design(2, 64, 3, 512, np.zeros(2), np.ones(3), 0)
    assert (design.weight == 1.0).all()


def test_effective_tail_counts_equal_weights_and_discounts_unequal_ones() -> None:
    times = np.arange(10.0)
    assert effective_tail(np.ones(10), times, 6.0) == pytest.approx(4.0)
    assert effective_tail(np.array([1.0] * 9 + [1e9]), times, 6.0) == pytest.approx(1.0, rel=1e-6)
    assert effective_tail(np.ones(10), times, 11.0) == 0.0


def test_a_frequent_small_stall_keeps_the_tail_of_a_rare_large_one() -> None:
    """Against 400,000 direct draws: p99.5 lies in the large stall's tail, which the small one must carry along."""
    rng = np.random.default_rng(5)
    base = np.sort(1.0 + 0.003 * rng.standard_normal(1 << 14))
    n = 400_000
    large = np.where(rng.random(n) < 0.0068, rng.exponential(0.055, n), 0.0)
    small = np.where(rng.random(n) < 0.97, rng.exponential(0.0059, n), 0.0)
    drawn = rng.choice(base, n) * (1.0 + large) * (1.0 + small)
    found = stalled(stalled(base, 0.0068, 0.055), 0.97, 0.0059)
    for p in (0.5, 0.95, 0.99, 0.995, 0.999):
        density = (np.quantile(drawn, p + 0.1 * (1 - p)) - np.quantile(drawn, p - 0.1 * (1 - p))) / (0.2 * (1 - p))
        error = density * np.sqrt(p * (1 - p) / n)
        assert abs(np.quantile(found, p) - np.quantile(drawn, p)) < 5 * error + 1e-4  # false alarm below 1e-5
    assert found.mean() == pytest.approx(drawn.mean(), abs=2e-4)


# --- Steps of the same fleet: what persists is shared along a row, what changes in time is not -----------------------


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
    """Means of 8 steps vary by 1 / sqrt 8 of what steps do; 256 fleets know a standard deviation to 4.4%."""
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
    """A stall in 5% of steps adds its own length on average; five standard errors."""
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
