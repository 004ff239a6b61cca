"""The fleet model: simulated fleets are found again, and what the evidence says of their shape."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from inference import Settings, holdout, measured
from inference.data.read import tidy
from inference.fitting.fit import posterior
from inference.fleet.data import FleetData, fleet_data
from inference.fleet.model import FleetModel, kernel_class
from inference.fleet.predict import POSITIVE, Component, FleetParameters, log_nodes, new_gpus
from prism_jax.core.errors import DataError
from prism_jax.variability.family_registry import Mixture
from tests.inference.fleet.fleets import TRUTH, fleet_table

N_STANDARD_ERROR = 4.0  # two-sided false alarm 6e-5 per comparison


def law_of(truth: dict[str, float], typical_log_s: float) -> FleetParameters:
    one = {name: np.array([truth[name]]) for name in ("gpu_spread", "node_spread", "run_spread", "rest_spread")}
    few = {name: truth[name] for name in ("slow_prob", "slow_shift", "slow_spread", "far_prob", "far_spread")}
    return FleetParameters(typical_log_s=np.array([typical_log_s]), kernel_spread=np.zeros(1), **one, **few)


def test_statistics_of_a_balanced_fleet_are_those_of_two_way_analysis_of_variance() -> None:
    frame = fleet_table(np.random.default_rng(0), n_node=3, gpus_per_node=4, n_run=5)
    data = fleet_data(frame)
    log_s = np.log(frame["duration_s"].to_numpy()).reshape(3, 4, 5)
    gpu = log_s.mean(axis=2)
    run = log_s.mean(axis=1, keepdims=True) - log_s.mean(axis=(1, 2), keepdims=True)
    rest = log_s - gpu[:, :, None] - run
    np.testing.assert_allclose(data.mean_log, gpu.ravel(), atol=1e-12)
    np.testing.assert_allclose(data.syy, [(rest**2).sum()], rtol=1e-9)
    np.testing.assert_allclose(data.dof, [3 * 3 * 4])
    np.testing.assert_allclose(np.sort(data.block_square), np.sort(4 * (run**2).sum(axis=(1, 2))), rtol=1e-9)
    np.testing.assert_array_equal(data.block_dof, [4.0, 4.0, 4.0])
    assert data.shared_runs


def test_gpus_that_are_alone_on_their_node_do_not_count_their_runs_as_rest() -> None:
    frame = fleet_table(np.random.default_rng(12), n_node=60, gpus_per_node=4, n_run=8)
    alone = pd.DataFrame(frame[(frame["node"] < "n0030") | frame["gpu"].str.endswith("-0")])
    data = fleet_data(alone)
    standard_error = TRUTH["rest_spread"] ** 2 * np.sqrt(2.0 / data.dof[0])
    assert abs(data.syy[0] / data.dof[0] - TRUTH["rest_spread"] ** 2) < N_STANDARD_ERROR * standard_error
    np.testing.assert_array_equal(data.block_gpus[30:], 1.0)
    assert np.isfinite(data.node_runs).all()


def brute_log_node(data: FleetData, law: FleetParameters, node: int) -> float:
    """The integral over one node's score on a fine grid, in SciPy."""
    score = np.linspace(-60.0, 60.0, 200_001)
    left = float(law.run_spread[0] / law.node_spread[0]) ** 2 / data.node_runs[node]
    prior = (1.0 - law.far_prob) * stats.norm.pdf(score, 0.0, np.sqrt(1.0 + left))
    prior += law.far_prob * stats.norm.pdf(score, 0.0, np.sqrt(law.far_spread**2 + left))
    log_likelihood = np.zeros_like(score)
    for cell in np.flatnonzero(data.gpu_node[data.cell_gpu] == node):
        rest = data.mean_log[cell] - law.typical_log_s[0] - law.node_spread[0] * score
        noise = law.rest_spread[0] ** 2 / data.count[cell]
        tau = law.gpu_spread[0]
        bulk = stats.norm.pdf(rest, 0.0, np.sqrt(tau**2 + noise))
        slow = stats.norm.pdf(rest, tau * law.slow_shift, np.sqrt((tau * law.slow_spread) ** 2 + noise))
        log_likelihood += np.log((1.0 - law.slow_prob) * bulk + law.slow_prob * slow + 1e-300)
    return float(
        np.log(np.trapezoid(prior * np.exp(log_likelihood - log_likelihood.max()), score)) + log_likelihood.max()
    )


@pytest.mark.parametrize("node_spread", [0.0003, 0.003, 0.03])
def test_the_integral_over_nodes_is_that_of_a_fine_grid(node_spread: float) -> None:
    truth = {**TRUTH, "node_spread": node_spread}
    data = fleet_data(fleet_table(np.random.default_rng(1), n_node=6, gpus_per_node=4, truth=truth))
    law = law_of(truth, np.log(1e-3))
    with jax.enable_x64(True):
        found = np.asarray(log_nodes(data, law))
    expected = [brute_log_node(data, law, node) for node in range(6)]
    np.testing.assert_allclose(found, expected, atol=2e-3)  # of a log density


@pytest.mark.slow
def test_spreads_are_recovered() -> None:
    """NUTS on 240 GPUs: every population parameter within four posterior standard deviations of its true value."""
    data = FleetModel().prepare(fleet_table(np.random.default_rng(2)))
    settings = Settings(n_chain=2, n_warmup=200, n_draw=200)
    draws = posterior(FleetModel(), data, "nuts", jax.random.key(0), settings=settings).draws
    for name, true in TRUTH.items():
        log = np.log(draws[name]) if name != "slow_shift" else draws[name]
        target = np.log(true) if name != "slow_shift" else true
        assert abs(float(log.mean()) - target) < N_STANDARD_ERROR * float(log.std()), name


@pytest.fixture(scope="module")
def fitted() -> tuple[FleetData, dict[str, np.ndarray]]:
    data = fleet_data(fleet_table(np.random.default_rng(3), n_node=20, gpus_per_node=4))
    sampled = posterior(FleetModel(), data, "map", jax.random.key(0), settings=Settings(n_approximate_draw=500))
    return data, {name: value[0] for name, value in sampled.draws.items()}


def test_a_gpu_on_a_measured_node_is_known_better_than_one_on_a_new_node(fitted) -> None:
    data, draws = fitted
    series = data.series[0]
    known = new_gpus(data, draws, series=series, nodes=[str(data.node[0])], key=jax.random.key(1))
    fresh = new_gpus(data, draws, series=series, nodes=[None], key=jax.random.key(1))
    assert np.ptp(np.quantile(known, [0.16, 0.84])) < np.ptp(np.quantile(fresh, [0.16, 0.84]))


def test_gpus_of_one_new_node_move_together(fitted) -> None:
    data, draws = fitted
    together = new_gpus(data, draws, series=data.series[0], nodes=["new", "new"], key=jax.random.key(2), n_draw=4000)
    apart = new_gpus(data, draws, series=data.series[0], nodes=[None, None], key=jax.random.key(2), n_draw=4000)
    assert np.corrcoef(together.T)[0, 1] > np.corrcoef(apart.T)[0, 1] + 0.1


def test_other_units_of_time_change_only_the_typical_time() -> None:
    frame = fleet_table(np.random.default_rng(4), n_node=5, gpus_per_node=4)
    slow = frame.assign(duration_s=frame["duration_s"] * 1000.0)
    one, other = fleet_data(frame), fleet_data(slow)
    np.testing.assert_allclose(one.syy, other.syy, rtol=1e-9)
    np.testing.assert_allclose(one.node_median, other.node_median, atol=1e-12)
    np.testing.assert_allclose(one.series_median + np.log(1000.0), other.series_median)


def test_disturbed_runs_are_counted_and_kept_out() -> None:
    frame = fleet_table(np.random.default_rng(6), n_node=4, gpus_per_node=4)
    disturbed = frame.copy()
    disturbed.loc[[3, 50], "duration_s"] *= 1.5
    data = fleet_data(disturbed)
    assert data.n_disturbed[0] == 2
    assert data.disturbed_excess[0] == pytest.approx(np.log(1.5), abs=0.03)
    assert data.syy[0] < 1.5 * fleet_data(frame).syy[0]


def test_what_the_clock_does_within_a_gpu_is_found() -> None:
    rng = np.random.default_rng(7)
    frame = fleet_table(rng, n_node=6, gpus_per_node=4, n_run=10, shared_runs=False)
    frame["clock_mhz"] = 1400.0 * np.exp(0.01 * rng.standard_normal(len(frame)))
    frame["duration_s"] *= (frame["clock_mhz"] / 1400.0) ** -0.8
    data = fleet_data(frame)
    sampled = posterior(FleetModel(), data, "map", jax.random.key(0), settings=Settings(n_approximate_draw=500))
    slope = sampled.draws["slope"][0, :, 0, 0]
    assert abs(slope.mean() + 0.8) < N_STANDARD_ERROR * slope.std()
    assert slope.std() < 0.05


def test_several_kernels_share_one_score_per_chip() -> None:
    one = fleet_table(np.random.default_rng(8), n_node=8, gpus_per_node=4)
    other = one.assign(kernel="copy", duration_s=one["duration_s"] ** 0.5)
    data = fleet_data(pd.concat([one, other]))
    assert data.several_kernels
    assert len(data.kernel) == 2
    sampled = posterior(FleetModel(), data, "map", jax.random.key(0), settings=Settings(n_approximate_draw=300))
    spread = sampled.draws["gpu_spread"][0].mean(axis=0)  # kernels in alphabetical order: copy, gemm
    assert spread[0] / spread[1] == pytest.approx(0.5, abs=0.1)


def test_too_few_gpus_are_refused() -> None:
    with pytest.raises(DataError, match="3 GPUs are too few.*--map gpu"):
        fleet_data(fleet_table(np.random.default_rng(9), n_node=1, gpus_per_node=3))


def test_the_tree_has_the_fitted_spreads(fitted) -> None:
    data, draws = fitted
    middle = {name: value.mean(axis=0) for name, value in draws.items()}
    tree = FleetModel().variability(data, middle)
    gpu = tree.of("gemm").gpu
    assert isinstance(gpu, Mixture)
    assert gpu.bulk_cv == pytest.approx(float(middle["gpu_spread"][0]), rel=1e-6)
    assert tree.of("attention").gpu == gpu  # classes that were not measured take what is known


def test_a_fast_batch_makes_the_rest_the_slow_component(fitted) -> None:
    data, draws = fitted
    middle = {name: value.mean(axis=0) for name, value in draws.items()}
    middle |= {"slow_shift": np.array(-20.0), "slow_prob": np.array(0.15)}
    gpu = FleetModel().variability(data, middle).of("gemm").gpu
    assert isinstance(gpu, Mixture)
    assert gpu.slow_prob == pytest.approx(0.85)
    assert gpu.slow_factor > 1.0


@pytest.mark.parametrize(("slow_prob", "shift"), [(1.0, 1.0), (0.9999, 2.0), (1e-6, -20.0), (0.0, 1.0)])
def test_draws_that_put_all_chips_into_one_component_are_mixtures_too(fitted, slow_prob: float, shift: float) -> None:
    data, draws = fitted
    middle = {name: value.mean(axis=0) for name, value in draws.items()}
    middle |= {"slow_shift": np.array(shift), "slow_prob": np.array(slow_prob)}
    assert isinstance(FleetModel().variability(data, middle).of("gemm").gpu, Mixture)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SGEMM (cuBLAS)", "gemm"),
        ("flash_attn_fwd", "attention"),
        ("memcpy HtoD", "memory"),
        ("ResNet iteration", None),
    ],
)
def test_kernel_classes_are_read_off_names(name: str, kind: str | None) -> None:
    assert kernel_class(name) == kind


@pytest.fixture(scope="module")
def sgemm(shared_data: Path):
    where = {"kernel": "SGEMM (cuBLAS, median of reps)"}
    return measured(shared_data / "variability" / "gpu_kernels.csv.gz", "fleet", where=where)


def test_longhorn_is_the_chip_and_the_chip_is_its_clock(sgemm) -> None:
    data = FleetModel().prepare(sgemm.frame)
    sampled = posterior(FleetModel(), data, "svi", jax.random.key(0), settings=Settings(n_approximate_draw=1000))
    said = FleetModel().describe(data, {name: value[0] for name, value in sampled.draws.items()})
    shares = said["variance_shares"]
    assert shares["gpu"] == pytest.approx(0.97, abs=0.02)
    assert shares["node"] == pytest.approx(0.01, abs=0.02)
    assert shares["run"] == pytest.approx(0.02, abs=0.02)
    clock = said["covariates"]["clock_mhz"][data.kernel[0]]
    assert clock["correlation_across_gpus"] < -0.85


@pytest.mark.slow
def test_gpus_left_out_of_longhorn_are_predicted(sgemm) -> None:
    found = holdout(sgemm, model="fleet", column="gpu_uuid", key=jax.random.key(0), n_split=10).as_dict()
    assert found["ks"] <= 0.078
    assert 0.87 <= found["coverage_90"] <= 0.93


def test_columns_of_other_tools_are_understood() -> None:
    frame = fleet_table(np.random.default_rng(10), n_node=2, gpus_per_node=4)
    renamed = frame.rename(columns={"gpu": "uuid", "node": "hostname"}).assign(time_ms=frame["duration_s"] * 1e3)
    found = tidy(
        renamed.drop(columns="duration_s"), FleetModel.columns, mapping={"duration": "time_ms"}, units={}, where={}
    )
    np.testing.assert_allclose(found.frame["duration_s"], frame["duration_s"], rtol=1e-12)


# --- Whether a second component of a fleet is asked for by the data, and what the verdict then looks at --------------


N_DRAW = 4000
COMPONENT = {"slow_shift", "slow_spread"}


@pytest.fixture(scope="module")
def data() -> FleetData:
    return fleet_data(fleet_table(np.random.default_rng(0), n_node=8, gpus_per_node=8, n_run=3))


def draws_with(slow_prob: np.ndarray) -> dict[str, np.ndarray]:
    """Draws [draw, ...] of a fleet whose only question is the share of slow chips."""
    rng = np.random.default_rng(1)
    n = len(slow_prob)
    spreads = ("gpu_spread", "node_spread", "run_spread", "rest_spread")
    return {
        "typical_log_s": rng.normal(-7.0, 0.001, (n, 1)),
        **{name: rng.lognormal(np.log(0.01), 0.05, (n, 1)) for name in spreads},
        "slow_prob": slow_prob,
        "slow_half": 2.0 * slow_prob,
        "slow_shift": rng.normal(0.0, 4.0, n),
        "slow_spread": rng.lognormal(0.4, 0.7, n),
        "far_prob": 0.5 * rng.beta(1.0, 9.0, n),
        "far_spread": 1.0 + rng.lognormal(0.7, 0.9, n),
    }


def test_data_that_say_nothing_have_a_bayes_factor_of_one() -> None:
    """Draws of the prior. P(share < 1/64) = 0.249, so that the standard error of the factor is 2.7%."""
    share = 0.5 * np.random.default_rng(2).beta(1.0, 9.0, N_DRAW)
    assert Component(share, 64).bayes_factor == pytest.approx(1.0, abs=4 * 0.027)


def test_shares_that_are_never_small_are_evidence_as_far_as_the_draws_reach() -> None:
    found = Component(np.full(N_DRAW, 0.06), 64)
    assert found.bayes_factor == pytest.approx(0.2487 * N_DRAW, rel=1e-3)
    assert found.is_found


def test_shares_that_are_always_small_are_evidence_against() -> None:
    found = Component(np.full(N_DRAW, 0.001), 64)
    assert found.bayes_factor == pytest.approx(0.2487, rel=1e-3)
    assert not found.is_found


def test_a_component_that_is_not_found_is_neither_judged_nor_reported(data: FleetData) -> None:
    draws = draws_with(0.5 * np.random.default_rng(3).beta(1.0, 9.0, N_DRAW))
    assert not COMPONENT & set(FleetModel().judged(data, draws))
    said = FleetModel().describe(data, draws)
    assert said["slow_chips"]["shift_in_bulk_spreads"] is None
    assert said["slow_chips"]["prob"]["p95"] > 0.0
    assert any("no slow chips stand out (Bayes factor" in note for note in said["notes"])


def test_a_component_that_is_found_is_judged_and_reported(data: FleetData) -> None:
    draws = draws_with(np.random.default_rng(4).uniform(0.03, 0.1, N_DRAW))
    assert set(FleetModel().judged(data, draws)) >= COMPONENT
    said = FleetModel().describe(data, draws)
    assert said["slow_chips"]["bayes_factor"] > POSITIVE
    assert said["slow_chips"]["shift_in_bulk_spreads"] is not None
    assert not any("no slow chips" in note for note in said["notes"])


def test_the_spread_of_all_chips_is_judged_chain_by_chain(data: FleetData) -> None:
    draws = {name: value.reshape(4, -1, *value.shape[1:]) for name, value in draws_with(np.full(N_DRAW, 0.05)).items()}
    judged = FleetModel().judged(data, draws)
    p, shift, spread = 0.05, draws["slow_shift"], draws["slow_spread"]
    expected = draws["gpu_spread"][..., 0] * np.sqrt(1.0 - p + p * spread**2 + p * (1.0 - p) * shift**2)
    np.testing.assert_allclose(judged["spread_of_all_gpus"][..., 0], expected)
    assert "slow_half" not in judged, "only what is reported"
