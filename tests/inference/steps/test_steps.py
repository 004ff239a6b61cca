"""Step times: simulated runs are found again, and the shape of their noise."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from inference.engine.laplace import mode
from inference.engine.program import constrained, program
from inference.steps.data import StepsData
from inference.steps.model import StepsModel, measured_unit
from inference.steps.predict import coordinates, new_run, query_of, shapes
from inference.steps.report import variance_shares
from inference.steps.runs import (
    LEVELS,
    P99,
    cdf,
    excess,
    gpu_class,
    ks_distance,
    lag_one,
    quantile,
    ratios,
    read_runs,
    shape_of,
)
from prism_jax.core.errors import DataError

MODEL = StepsModel()
N_REPEAT, N_STEP = 4, 150


def simulated(n_system: int, seed: int, spread: float = 0.8, run_level: float = 0.002) -> Any:
    """Two benchmarks; the width of a system's steps is 0.5% times exp(spread * Normal), tails twice as wide as the bulk."""
    rng = np.random.default_rng(seed)
    rows = []
    for s in range(n_system):
        width = 0.005 * np.exp(spread * rng.standard_normal())
        for repeat in range(N_REPEAT):
            noise = rng.standard_normal(N_STEP) * np.where(rng.random(N_STEP) < 0.1, 3.0, 1.0)
            level = 2.0 * np.exp(run_level * rng.standard_normal())
            rows.append(
                pd.DataFrame(
                    {
                        "run": f"{s}-{repeat}",
                        "system": f"system{s}",
                        "benchmark": "ab"[s % 2],
                        "n_gpus": 8.0 * 2 ** (s % 4),
                        "step": np.arange(N_STEP),
                        "duration_s": level * np.exp(width * noise),
                    }
                )
            )
    return pd.concat(rows, ignore_index=True)


def fitted(data: StepsData) -> dict[str, np.ndarray]:
    """The mode, as one draw."""
    with jax.enable_x64(True):
        made = program(MODEL, data, jax.random.key(0))
        _, unravel = made.ravel()
        return constrained(made, jax.vmap(unravel)(jnp.asarray(mode(made).at)[None]))


@pytest.fixture(scope="module")
def fit() -> tuple[pd.DataFrame, StepsData, dict[str, Any]]:
    frame = simulated(40, seed=1)
    kept = frame[~frame["system"].isin([f"system{i}" for i in range(30, 40)])]
    data = MODEL.prepare(kept)
    return frame, data, fitted(data)


def test_durations_in_other_units_change_nothing_but_the_level(fit):
    frame, data, _ = fit
    kept = frame[frame["system"].isin([f"system{i}" for i in range(30)])]
    other = MODEL.prepare(kept.assign(duration_s=kept["duration_s"] * 7.3))
    np.testing.assert_allclose(other.value, data.value, atol=1e-6)
    np.testing.assert_allclose(other.level_mean - data.level_mean, np.log(7.3), atol=1e-9)


def test_repeats_of_known_systems_are_known_better_than_systems_not_seen(fit):
    _, data, draws = fit
    known = measured_unit(data)
    other = query_of(data, [({"metric": "", "benchmark": "a"}, 8.0, "unseen")])
    tails = [
        np.log(ratios(shapes(data, coordinates(data, draws, q, 2000, jax.random.key(2))))[:, 0, 1] - 1.0)
        for q in (known, other)
    ]
    assert np.ptp(np.quantile(tails[1], [0.05, 0.95])) > 2.0 * np.ptp(np.quantile(tails[0], [0.05, 0.95]))


def test_intervals_of_left_out_systems_hold_what_was_simulated(fit):
    """10 systems, 20 ratios, strongly dependent in pairs: fewer than 6 of 10 inside has probability .0016 at 90% coverage."""
    frame, data, draws = fit
    out = frame[frame["system"].isin([f"system{i}" for i in range(30, 40)])]
    scores = MODEL.score(data, draws, out, "system", jax.random.key(3))
    assert len(scores) == 10
    assert np.mean([s.coverage_90 for s in scores]) >= 0.6
    assert np.median([s.p99_p50_ape for s in scores]) < 0.03


def test_left_out_repeats_are_predicted_better_than_by_the_benchmark(fit):
    frame, _, draws = fit
    last = frame["run"].str.endswith("-3")
    data = MODEL.prepare(frame[~last])
    scores = MODEL.score(data, draws, frame[last], "run", jax.random.key(4))
    assert np.median([s.ks for s in scores]) < np.median([s.ks_empirical for s in scores])
    inside = np.mean([s.coverage_90 for s in scores])
    assert inside >= 0.75  # 80 ratios of 40 runs: five standard errors below .9 for independent runs, three for pairs
    totals = [s.extra["total_coverage_90"] for s in scores]
    assert np.mean(totals) >= 0.75


def test_spread_between_systems_is_found_and_shares_sum_to_one(fit):
    _, data, draws = fit
    shares = variance_shares(data, draws, P99)
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-3)
    assert shares["run"] < 0.2  # simulated: none but the sampling error of p99
    assert MODEL.describe(data, draws)["n_configurations"] == 30


def test_new_runs_have_median_one(fit):
    _, data, draws = fit
    steps = new_run(data, draws, measured_unit(data), n_steps=400, n_draw=20, key=jax.random.key(5))
    assert steps.shape == (20, 400)
    np.testing.assert_allclose(np.median(steps, axis=1), 1.0, atol=0.01)


def test_tree_has_a_step_factor_with_mean_one(fit):
    _, data, draws = fit
    tree = MODEL.variability(data, {name: value[0] for name, value in draws.items()})
    z = np.linspace(-4.0, 4.0, 400)
    assert np.all(np.diff(tree.step.ppf_normal(z)) >= 0.0)
    assert 0.0 < tree.step.cv < 0.1
    assert abs(tree.step_ar1) < 0.2


def test_short_runs_and_lone_schedules_are_left_out_and_counted():
    frame = simulated(3, seed=2)
    short = frame[frame["run"] == "0-0"].head(15)
    table = read_runs(pd.concat([frame[frame["run"] != "0-0"], short]))
    assert len(table.runs) == 3 * N_REPEAT - 1
    assert table.notes == ("1 runs left out: fewer than 20 values after the first 3",)
    lone = read_runs(frame[frame["run"].str.endswith("-0")].assign(group=lambda f: f["system"]))
    assert not lone.runs
    assert "no schedule" in lone.notes[0]


def test_nothing_to_fit_is_refused():
    with pytest.raises(DataError, match="no run to fit to"):
        MODEL.prepare(simulated(1, seed=3).head(10))


def test_schedules_of_a_group_and_validation_pauses_do_not_count_as_variability():
    rng = np.random.default_rng(4)
    schedule = np.where(np.arange(600) < 300, 0.5, 0.9)
    rows = [
        pd.DataFrame(
            {"run": str(i), "group": "g", "step": np.arange(600), "flag": np.arange(600) % 100 == 50}
            | {"duration_s": schedule * np.exp(0.002 * rng.standard_normal(600)) + 5.0 * (np.arange(600) % 100 == 50)}
        )
        for i in range(9)
    ]
    runs = read_runs(pd.concat(rows)).runs
    assert len(runs) == 9
    assert max(run.ratios[1] for run in runs) < 1.008  # 2.33 sd = .5%
    assert max(abs(run.level) for run in runs) < 0.001


def test_coarse_clocks_are_read_in_blocks():
    frame = simulated(1, seed=5).assign(duration_s=lambda f: np.round(f["duration_s"] * 0.03, 3))
    assert {run.relative.size for run in read_runs(pd.concat([frame] * 1)).runs} == set()
    longer = pd.concat([frame.assign(step=frame["step"] + N_STEP * i) for i in range(3)])
    assert {run.relative.size for run in read_runs(longer).runs} == {(3 * N_STEP - 3) // 10}


# --- Shapes of runs: quantile functions that rise, and sums of autocorrelated steps ----------------------------------


def test_quantile_function_never_falls():
    rng = np.random.default_rng(0)
    prob = np.linspace(1e-6, 1.0 - 1e-6, 999)
    for shape in rng.normal(-4.0, 2.0, (200, LEVELS.size)):
        assert np.all(np.diff(quantile(shape, prob)) >= 0.0)
        assert np.all(quantile(shape, prob) > 0.0)


def test_shape_gives_back_the_quantiles_it_was_made_of():
    steps = np.exp(0.02 * np.random.default_rng(1).standard_normal(4000))
    steps /= np.median(steps)
    shape = shape_of(steps)
    np.testing.assert_allclose(1.0 + excess(shape), np.quantile(steps, LEVELS), rtol=1e-12)
    np.testing.assert_allclose(ratios(shape), np.quantile(steps, [0.95, 0.99]), rtol=1e-12)
    np.testing.assert_allclose(quantile(shape, LEVELS), np.quantile(steps, LEVELS), rtol=1e-12)


def test_shape_of_a_constant_run_does_not_vary():
    shape = shape_of(np.ones(50))
    np.testing.assert_allclose(quantile(shape, np.array([0.001, 0.3, 0.999])), 1.0, atol=1e-9)
    assert lag_one(np.ones(50)) == 0.0


def test_cdf_is_that_of_normal_steps():
    steps = 1.0 + 0.01 * np.random.default_rng(2).standard_normal(200_000)
    shape = shape_of(steps / np.median(steps))
    values = np.sort(steps / np.median(steps))
    assert ks_distance(values, cdf(shape, values)) < 0.01


def test_lag_one_finds_the_autocorrelation():
    rng = np.random.default_rng(3)
    score = rng.standard_normal(4000)
    for i in range(1, score.size):
        score[i] = 0.6 * score[i - 1] + 0.8 * score[i]
    assert lag_one(np.exp(score)) == pytest.approx(0.6, abs=0.05)  # standard error .013


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA H100-SXM5-80GB", "H100"),
        ("NVIDIA Blackwell GPU (GB200)", "GB200"),
        ("AMD Instinct MI300X 192GB HBM3", "MI300X"),
        ("NVIDIA A100-PCIe-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("something else", "something else"),
    ],
)
def test_gpu_models_are_told_from_their_names(name: str, found: str):
    assert gpu_class(name) == found
