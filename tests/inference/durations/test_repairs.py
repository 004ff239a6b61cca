"""The repairs model: its integrals are exact, its laws are those of scipy, and group losses are told from independent nodes."""

import itertools

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln
from scipy.stats import expon, lognorm, norm, weibull_min

import inference
from inference.durations import durations as laws, repair_data as events
from inference.durations.durations import around_likelihood, tick, times
from inference.durations.repair_data import WITHIN_S, RepairsData, from_frame, system_log
from inference.durations.repairs import N, Repairs
from prism_jax.core.errors import DataError, FitError

THETA = np.array([[8.0, 0.4], [9.0, -0.3]])
HOURS = 12.0
SMALL = inference.Settings(n_approximate_draw=200)


def test_every_law_gives_all_times_together_one() -> None:
    edges = np.concatenate([[0.0], np.geomspace(1e-3, 1e12, 3000)])
    for law in laws._weibull, laws._log_normal:
        inside, after = law(edges[:-1], edges[1:], THETA)
        np.testing.assert_allclose(np.exp(inside).sum(axis=1), 1.0, atol=1e-9)
        np.testing.assert_allclose(np.exp(after[:, 1000]), np.exp(inside)[:, 1000:].sum(axis=1), atol=1e-9)


def test_laws_are_those_of_scipy() -> None:
    seconds = np.array([300.0, 4000.0, 2e4])
    counted, beyond = times(seconds, np.array([2000.0]), 1.0), 2000.0
    for law, theta in itertools.product(laws.LAWS, THETA):
        spread, median = np.exp(theta[1]), np.exp(theta[0])
        shape = np.pi / np.sqrt(6.0) / spread
        of = (
            weibull_min(shape, scale=median / np.log(2.0) ** (1.0 / shape))
            if law == "weibull"
            else lognorm(spread, scale=median)
        )
        expected = np.log(of.cdf(counted.high) - of.cdf(counted.low)).sum() + of.logsf(counted.beyond).sum()
        assert laws.log_likelihood(law, counted, theta[None])[0] == pytest.approx(expected, rel=1e-9)
        mean = laws.mean_s(np.array([law == "weibull"]), theta[None])[0]
        assert mean == pytest.approx(of.mean(), rel=1e-9)
    assert counted.beyond[0] <= beyond < counted.beyond[0] * 1.12


def test_the_exponential_law_is_one_of_weibulls() -> None:
    counted = times(np.array([30.0, 4000.0]), np.zeros(0), 1.0)
    of = expon(scale=3000.0 / np.log(2.0))
    expected = np.log(of.cdf(counted.high) - of.cdf(counted.low)).sum()
    assert laws.exponential(counted, np.log([3000.0]))[0] == pytest.approx(expected, rel=1e-9)


def test_every_time_lies_in_its_interval_and_ticks_do_not_share_one() -> None:
    seconds = np.array([0.0, 60.0, 120.0, 180.0, 3600.0, 1e7])
    counted = times(seconds, np.zeros(0), 60.0)
    assert counted.count.sum() == len(seconds)
    assert np.all((counted.low <= seconds) & (seconds < counted.high))
    assert (counted.low[0], counted.high[0]) == (0.0, 30.0)
    assert tick(seconds[:-1]) == 60.0
    assert tick(seconds + 1.0) == 1.0


def test_a_grid_integrates_a_gaussian_likelihood() -> None:
    covariance = np.array([[0.04, 0.01], [0.01, 0.09]])
    root, at = np.linalg.inv(covariance), np.array([9.0, 0.2])

    def log_likelihood(points: np.ndarray) -> np.ndarray:
        apart = points - at
        return -0.5 * np.einsum("pi,ij,pj->p", apart, root, apart)

    points, weight = around_likelihood(log_likelihood, np.array([8.0, 0.5]), np.array([3.0, 1.0]))
    mean, sd = np.array([8.7, 0.0]), np.array([0.3, 0.4])
    found = laws.of_pairs(points[None], weight[None], mean, sd)
    both = covariance + np.diag(sd**2)
    apart = at - mean
    expected = -0.5 * apart @ np.linalg.inv(both) @ apart + 0.5 * np.log(
        np.linalg.det(covariance) / np.linalg.det(both)
    )
    assert float(found[0]) == pytest.approx(expected, abs=1e-3)


def test_a_line_without_data_has_probability_one() -> None:
    points, weight = around_likelihood(lambda at: np.zeros(len(at)), np.array([2.0]), np.array([1.5]))
    assert float(laws.of_line(points[:, 0][None], weight[None], 2.3, 0.7)[0]) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("n_node", [2.0, 50.0, 20_000.0])
def test_sizes_add_up_to_one(n_node: float) -> None:
    k = np.arange(2.0, n_node + 1.0)
    for exponent in (0.0, 1.5, 4.0):
        assert events.log_sum(np.array(exponent), n_node) == pytest.approx(np.log((k**-exponent).sum()), abs=2e-4)
        mean = (k ** (1.0 - exponent)).sum() / (k**-exponent).sum()
        assert events.mean_of_several(np.array(exponent), n_node) == pytest.approx(mean, rel=1e-3)


def test_the_urn_is_the_product_of_its_steps() -> None:
    points, weight = events.alike_on_line(np.array([3.0, 1.0]), 5.0)
    a = np.exp(points)
    steps = a / (5 * a) * (a + 1) / (5 * a + 1) * (a + 2) / (5 * a + 2) * a / (5 * a + 3)
    np.testing.assert_allclose(np.diff(weight - np.log(steps)), 0.0, atol=1e-9)


def test_downs_within_minutes_are_one_event_and_a_flapping_node_went_down_once() -> None:
    node = np.array(["a", "b", "a", "c", "a"])
    start = np.array([0.0, 60.0, 120.0, 1000.0, 1100.0])
    end = np.array([30.0, 90.0, 150.0, np.nan, 1160.0])
    log = system_log(node, start, end, 4.0, 5000.0)
    assert log.sizes.tolist() == [2, 2]
    assert log.between.count.sum() == 1
    assert log.between.low[0] <= 1000.0 < log.between.high[0]
    assert log.between.beyond.tolist() == pytest.approx([4000.0], rel=0.11)
    assert log.repair.count.sum() == 3  # a of the first event from 0 to 150 s, b, a of the second
    assert log.repair.n_beyond.sum() == 1  # c, for 4,000 s
    # of nodes: a after 1,100 s, c after 1,000 s from the first event on; a, b, c and the one that never failed go on
    assert (log.of_node.count.sum(), log.of_node.n_beyond.sum()) == (2, 4)
    choose = np.log(4.0) + gammaln(4.0) - gammaln(2.0) - gammaln(3.0)
    assert log.log_which == pytest.approx(-choose - np.log(WITHIN_S))


def log_of(rng: np.random.Generator, n_node: int, n_event: int, group: int, name: str) -> pd.DataFrame:
    """Events of `group` nodes each, twelve hours apart on average, each repaired within an hour or so."""
    start = 1.7e9 + np.cumsum(rng.exponential(HOURS * 3600.0, n_event)).round()
    rows = [
        {"system": name, "node": f"n{node}", "start": at + rng.integers(0, 60), "nodes_total": n_node}
        for at in start
        for node in rng.choice(n_node, group, replace=False)
    ]
    table = pd.DataFrame(rows)
    table["end"] = table["start"] + (3600.0 * np.exp(rng.standard_normal(len(table)))).round()
    return table


@pytest.fixture(scope="module")
def several() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    return pd.concat(
        [log_of(rng, 40, 150, group, f"s{group}{i}") for group in (1, 4) for i in range(3)], ignore_index=True
    )


@pytest.fixture(scope="module")
def fitted(several: pd.DataFrame) -> inference.Fit:
    return inference.fit(several, model="repairs", method="map", key=jax.random.key(0), settings=SMALL)


def test_group_losses_are_likelier_together_and_single_ones_are_not_scored(
    several: pd.DataFrame, fitted: inference.Fit
) -> None:
    frame = inference.measured(several, "repairs").frame
    found = {
        one.group: one.extra for one in Repairs().score(fitted.data, fitted.draws, frame, "system", jax.random.key(0))
    }
    assert all("groups_gain" not in found[f"s1{i}"] for i in range(3))
    assert all(found[f"s4{i}"]["groups_gain"] > 1.0 for i in range(3))
    assert all(extra["repair_better"] == 1.0 for extra in found.values())  # log-normal of spread 1
    # Times are exponential by construction: what the free shape costs is a few nats per system at the most.
    assert all(abs(extra["between_gain"]) * 150 < 6.0 for extra in found.values())


def test_a_known_system_has_the_reliability_that_it_showed(fitted: inference.Fit) -> None:
    hazard = fitted.reliability("s40", force=True).hazards[0]
    assert hazard.per_node_h * 40 == pytest.approx(1.0 / HOURS, rel=0.3)  # 150 events: 8%, three and a half times that
    assert hazard.nodes_lost == pytest.approx(4.0, rel=0.15)
    assert hazard.repair_s == pytest.approx(3600.0, rel=0.2)
    assert hazard.repair_log_sd == pytest.approx(1.0, rel=0.15)
    assert hazard.shape == pytest.approx(1.0, rel=0.25)
    with pytest.raises(FitError, match="did you mean"):
        fitted.reliability("s4O", force=True)


def test_a_fit_is_kept_and_read_again(fitted: inference.Fit, tmp_path) -> None:
    fitted.save(tmp_path / "fit.npz")
    again = inference.Fit.load(tmp_path / "fit.npz")
    assert again.reliability(force=True) == fitted.reliability(force=True)
    assert again.describe()["n_systems"] == 6


def test_one_event_is_no_time_between_failures() -> None:
    table = pd.DataFrame({"system": ["a"], "start": [1.7e9], "end": [1.7e9 + 60]})
    with pytest.raises(DataError, match="no system has two events"):
        from_frame(inference.measured(table, "repairs").frame)


def test_a_failure_outside_the_watch_is_named() -> None:
    table = pd.DataFrame(
        {"system": ["a", "a"], "start": [1.7e9, 1.7e9 + 9e3], "trace_start": 1.6e9, "trace_end": 1.7e9 + 60}
    )
    with pytest.raises(DataError, match="row 2: start_time is after observed_until_time"):
        from_frame(inference.measured(table, "repairs").frame)


@pytest.mark.slow
def test_populations_are_found_again() -> None:
    """Twenty systems of log-normal repairs; every parameter within 3.9 standard deviations: false alarm 1e-4 each."""
    rng = np.random.default_rng(8)
    tables = []
    for index in range(20):
        median, spread = np.exp(rng.normal(8.0, 0.6)), np.exp(rng.normal(0.3, 0.2))
        table = log_of(rng, 60, 200, 1, f"s{index}")
        table["end"] = table["start"] + np.exp(rng.normal(np.log(median), spread, len(table)))
        tables.append(table)
    found = inference.fit(
        pd.concat(tables, ignore_index=True), model="repairs", method="map", key=jax.random.key(0)
    ).draws
    truth = {"location": 8.0, "log_spread": 0.3, "between_sd": 0.6, "spread_sd": 0.2}
    for name, value in truth.items():
        drawn = np.log(found[name][:, 1]) if name.endswith("_sd") else found[name][:, 1]
        expected = np.log(value) if name.endswith("_sd") else value
        assert abs(drawn.mean() - expected) < norm.isf(5e-5) * drawn.std(), name


def test_every_prior_has_a_start() -> None:
    table = log_of(np.random.default_rng(1), 10, 20, 1, "a")
    data: RepairsData = from_frame(inference.measured(table, "repairs").frame)
    assert all(np.all(np.isfinite(value)) for value in Repairs().start(data).values())
    assert Repairs().start(data)["location"].shape == (N,)
