"""The failures model: its density is the negative binomial, its intervals of new clusters hold what they should."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
import pytest
from numpyro.infer.util import log_density
from scipy.stats import binom, lognorm, nbinom, norm

import inference
from inference.durations import failures as rates
from inference.durations.failures import LOG_RATE, LOG_RATE_SD, LOG_SHAPE, Failures, FailuresData, from_frame
from prism_jax.core.errors import DataError, FailedFitError, FitError

MODEL = Failures()
SMALL = inference.Settings(n_approximate_draw=500)


def counts(**columns: object) -> pd.DataFrame:
    """Two clusters of 1,000 and 2,000 GPUs for 100 and 200 hours."""
    table = {"cluster": ["a", "b"], "gpus": [1000, 2000], "nodes": [125, 250], "hours": [100.0, 200.0], "count": [3, 9]}
    return pd.DataFrame({**table, **columns})


def prepared(table: pd.DataFrame) -> FailuresData:
    return from_frame(inference.measured(table, "failures").frame)


def simulated(n_cluster: int, shape: float, rate: float, rng: np.random.Generator) -> pd.DataFrame:
    """Clusters of 500 to 20,000 GPUs for 1,000 hours, whose rates per GPU-hour have a gamma law of that shape."""
    gpus = np.round(np.exp(rng.uniform(np.log(500), np.log(20_000), n_cluster)))
    mean = rate * rng.gamma(shape, 1.0 / shape, n_cluster) * gpus * 1000.0
    names = [f"c{i}" for i in range(n_cluster)]
    return pd.DataFrame({"cluster": names, "gpus": gpus, "hours": 1000.0, "count": rng.poisson(mean), "kind": "gpu"})


def test_the_density_is_that_of_negative_binomial_counts() -> None:
    data = prepared(counts(kind=["gpu", "gpu"]))
    log_rate, shape = np.array([-10.0, -9.0, -4.0]), 1.7
    with jax.enable_x64(True):
        found, _ = log_density(MODEL.program, (data,), {}, {"log_rate": log_rate, "shape": np.float64(shape)})
    mean = np.exp(log_rate[0]) * np.array([1e5, 4e5])
    count = np.array([3, 9])
    expected = nbinom.logpmf(count, shape, shape / (shape + mean)).sum()
    priors = norm.logpdf(log_rate, LOG_RATE, LOG_RATE_SD).sum() + lognorm.logpdf(
        shape, LOG_SHAPE[1], scale=np.exp(LOG_SHAPE[0])
    )
    factorials = np.log(6.0 * 362880.0)  # of the counts, which do not depend on parameters, are left out
    assert float(found) == pytest.approx(expected + priors + factorials, rel=1e-10)


def test_rows_that_differ_in_their_cause_share_their_hours() -> None:
    one = prepared(counts(cause=["x", "x"]))
    table = pd.concat(
        [counts(cause=["x", "x"], count=[1, 4]), counts(cause=["y", "y"], count=[2, 5])], ignore_index=True
    )
    two = prepared(table)
    np.testing.assert_array_equal(two.count, one.count)
    np.testing.assert_array_equal(two.exposure_h, one.exposure_h)
    assert dict(zip(two.causes, two.cause_count, strict=True)) == {"x": 5, "y": 7}


def test_a_cause_that_comes_again_is_another_window() -> None:
    table = pd.concat([counts(cause=["x", "x"]), counts(cause=["x", "x"], count=[2, 5])], ignore_index=True)
    assert prepared(table).gpu_hours.sum() == 2.0 * prepared(counts()).gpu_hours.sum()


@pytest.mark.parametrize(("given", "hours"), [({"days": [2.0, 3.0]}, 48.0), ({"window": ["2 days", "3 months"]}, 48.0)])
def test_windows_are_hours(given: dict[str, object], hours: float) -> None:
    table = counts(**given).drop(columns="hours")
    assert prepared(table).gpu_hours.min() == 1000.0 * hours


def test_levels_are_told_apart_by_kind_or_by_size_alone() -> None:
    np.testing.assert_array_equal(prepared(counts(kind=["gpu", "gpu"])).levels, [1, 0, 0])
    np.testing.assert_array_equal(prepared(counts()).levels, [1, 0, 1])  # 1,000 and 2,000 GPUs in a job
    np.testing.assert_array_equal(prepared(counts(nodes=[125, 1000])).levels, [1, 1, 1])
    np.testing.assert_array_equal(prepared(counts(kind=["gpu", "node"])).levels, [1, 1, 0])


def test_a_cluster_of_many_failures_has_its_own_rate() -> None:
    data = prepared(counts(count=[30_000, 3], kind=["gpu", "gpu"]))
    draws = {"log_rate": np.full((4000, 3), -9.0), "shape": np.full(4000, 2.0)}
    drawn = rates.cluster_rates(data, draws, "a", np.random.default_rng(0))[:, 0]
    assert drawn.mean() == pytest.approx(30_002 / (2.0 / np.exp(-9.0) + 1e5), rel=5e-4)  # gamma posterior; error 1e-4


def test_the_reliability_of_a_known_cluster_is_its_own_and_of_a_new_one_wider() -> None:
    rng = np.random.default_rng(3)
    fitted = inference.fit(
        simulated(12, 2.0, 2e-5, rng), model="failures", method="map", key=jax.random.key(0), settings=SMALL
    )
    if not fitted.verdict.ok:
        with pytest.raises(FailedFitError):
            fitted.reliability()
    known, new = fitted.reliability("c0", force=True), fitted.reliability(force=True)
    rate = float(fitted.data.count[0] / fitted.data.gpu_hours[0])
    assert known.rate_h(1000, 8) == pytest.approx(1000 * rate, rel=0.2)
    assert new.hazards[0].log_sd > 2.0 * known.hazards[0].log_sd
    with pytest.raises(FitError, match="did you mean c1"):
        fitted.reliability("c1x")


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"count": [3, -1]}, "row 2: count -1 must be at least 0"),
        ({"count": [3, 0.5]}, "row 2: count is not a whole number"),
        ({"count": [0, 0]}, "no interruption"),
        ({"count": [3, "many"]}, "row 2: count 'many' is not a number"),
        ({"count": [3, None]}, "row 2: count is missing"),
        ({"count": [3, np.inf]}, "row 2: count inf is infinite"),
        ({"gpus": [1000, 0]}, "row 2: gpus 0 must be above 0"),
        ({"hours": [100.0, -5.0]}, "row 2: hours -5.0 must be above 0"),
        ({"hours": [100.0, None]}, "row 2: hours is not known"),
        ({"hours": [100.0, 1e14]}, "row 2: hours is more than was ever run"),
        ({"nodes": [125, 4000]}, "row 2: nodes is more than the row's GPUs"),
        ({"kind": ["gpu", "gpus"]}, "row 2: kind 'gpus' is not known, did you mean gpu"),
        ({"cluster": ["a", ""]}, "row 2: cluster is missing"),
        ({"jobs": [1, 0]}, "row 2: jobs 0"),
    ],
)
def test_a_wrong_row_is_named(columns: dict[str, object], text: str) -> None:
    with pytest.raises(DataError, match=text):
        prepared(counts(**columns))


@pytest.mark.slow
def test_the_interval_of_a_cluster_that_was_left_out_holds_it() -> None:
    """Thirty tables of eight clusters, one left out of each; a correct interval fails the bound in one of a thousand runs."""
    rng = np.random.default_rng(11)
    inside = []
    for index in range(30):
        rate, shape = np.exp(rng.normal(LOG_RATE[0], 0.8)), np.exp(rng.normal(*LOG_SHAPE))
        table = simulated(8, shape, rate, rng)
        data = prepared(table.iloc[1:])
        found = inference.fit(table.iloc[1:], model="failures", method="map", key=jax.random.key(index), settings=SMALL)
        left_out = inference.measured(table.iloc[:1], "failures").frame
        if table["count"].iloc[0] > 0:
            inside += [
                one.coverage_90 for one in MODEL.score(data, found.draws, left_out, "cluster", jax.random.key(1))
            ]
    low, high = binom.ppf([0.0005, 0.9995], len(inside), 0.9)
    assert low <= sum(inside) <= high


def test_levels_that_the_data_do_not_tell_apart_have_no_rate() -> None:
    data = replace(prepared(counts()), levels=np.array([1.0, 0.0, 0.0]))
    draws = {"log_rate": np.zeros((5, 3)), "shape": np.ones(5)}
    assert not rates.cluster_rates(data, draws, None, np.random.default_rng(0))[:, 1:].any()
