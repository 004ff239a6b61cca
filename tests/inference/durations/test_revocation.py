"""The revocation model: spells are read as they were, laws are those of scipy, and the family that made the data is chosen."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import inference
from inference.durations import durations, revocation as predict
from inference.durations.durations import times
from inference.durations.revocation_data import (
    CLASSES,
    FAMILIES,
    QUANTITIES,
    SHAPES,
    from_frame,
    of_lifetimes,
    of_states,
)
from inference.engine.program import program
from prism_jax.cloud.spot import MIXTURES, components
from prism_jax.core.errors import DataError, FitError

SMALL = inference.Settings(n_approximate_draw=200)


def spot_trace(seed: int, n: int, nodes: int, zone: str, spread: float = 1.3) -> pd.DataFrame:
    """Log-normal spells and gaps of a zone, all nodes or three quarters of them there, seen every minute."""
    rng = np.random.default_rng(seed)
    length = 60.0 * np.ceil(60.0 * np.exp(spread * rng.standard_normal(n) + 0.3 * seed))
    state = np.where(np.arange(n) % 3 == 0, 0, np.where(np.arange(n) % 3 == 1, nodes, max(nodes * 3 // 4, 1)))
    start = np.cumsum(length) - length
    edge = np.arange(n)
    return pd.DataFrame(
        {
            "trace_id": f"t{zone}", "zone": zone, "gpu": "V100", "requested_nodes": nodes, "gap_s": 60.0, "start_s": start,
            "duration_s": length, "available": state, "censored_left": 1.0 * (edge == 0), "censored_right": 1.0 * (edge == n - 1),
        }
    )  # fmt: skip


def test_spells_of_a_series_by_hand() -> None:
    end = np.array([10.0, 30.0, 60.0, 100.0, 150.0, 210.0, 280.0])
    state = np.array([4, 0, 2, 4, 3, 0, 4])
    found = of_states(np.append(0.0, end[:-1]), end, state, (False, False))
    assert found.up.tolist() == [70.0, 50.0]  # 2 and 4 nodes are one spell: nodes that join end nothing
    assert found.up_beyond.tolist() == [10.0, 70.0]  # the first and the last
    assert found.down.tolist() == [20.0, 60.0]
    assert found.alive.tolist() == [4.0, 4.0, 3.0]
    assert found.lost.tolist() == [4.0, 1.0, 3.0]


def test_a_hole_in_a_series_ends_the_watch() -> None:
    found = of_states(np.array([0.0, 100.0]), np.array([10.0, 130.0]), np.array([1, 1]), (True, True))
    assert found.up_beyond.tolist() == [10.0, 30.0]
    assert not len(found.up)
    assert not len(found.lost)


def test_lives_that_end_together_are_one_event() -> None:
    duration = np.array([100.0, 105.0, 300.0, 900.0, 900.0])
    found = of_lifetimes(duration, duration, duration == 900.0, 15.0)
    assert found.up.tolist() == [100.0, 200.0]
    assert found.up_beyond.tolist() == [600.0]
    assert found.alive.tolist() == [5.0, 3.0]
    assert found.lost.tolist() == [2.0, 1.0]


def test_the_mixture_has_the_stated_mean_and_spread() -> None:
    theta = np.array([8.0, 0.3])
    for share, apart in MIXTURES:
        low, high, inner = components(theta, share, apart)

        def density(x: float, share: float = share, low=low, high=high, inner=inner) -> float:
            return float(share * norm.pdf(x, low, inner) + (1 - share) * norm.pdf(x, high, inner))

        mean = quad(lambda x, of=density: x * of(x), -20, 40)[0]
        variance = quad(lambda x, of=density, m=mean: (x - m) ** 2 * of(x), -20, 40)[0]
        assert mean == pytest.approx(8.0, abs=1e-6)
        assert np.log(variance) / 2 == pytest.approx(0.3, abs=1e-6)


def test_the_mixture_counts_all_times_together_as_one() -> None:
    seconds = np.geomspace(1.0, 1e9, 4000)
    for shape in SHAPES[2:]:
        one = [
            durations.log_likelihood(shape, times(np.array([at]), np.zeros(0), 60.0), np.array([[8.0, 0.2]]))[0]
            for at in seconds
        ]
        low = [times(np.array([at]), np.zeros(0), 60.0).low[0] for at in seconds]
        kept = np.unique(low, return_index=True)[1]
        assert np.exp(np.array(one)[kept]).sum() == pytest.approx(1.0, abs=1e-5)


@pytest.fixture(scope="module")
def fitted() -> inference.Fit:
    tables = [spot_trace(seed, 120, 4, f"z{seed}") for seed in range(4)]
    return inference.fit(
        pd.concat(tables, ignore_index=True), model="revocation", method="map", key=jax.random.key(0), settings=SMALL
    )


def test_log_normal_spells_are_not_called_exponential(fitted: inference.Fit) -> None:
    found = predict.chosen_families(fitted.data, fitted.draws)
    for index in range(len(QUANTITIES)):
        assert FAMILIES[found.family[index]] in ("log-normal", "mixture")
        assert found.log_density[2, index] > found.log_density[1, index] > found.log_density[0, index]


def test_losses_are_counted_by_what_they_take(fitted: inference.Fit) -> None:
    """A cycle is 0, 4, 3: of two losses one takes a node of four, the other all of three."""
    one, some, everything = fitted.data.losses.sum(axis=0)
    assert some == 0.0
    assert abs(one - everything) <= 4.0
    share = np.median(fitted.draws["class"], axis=0)
    assert share[CLASSES.index("one")] > 0.3
    assert share[CLASSES.index("all")] > 0.3


def test_a_zone_of_the_fit_is_known_better_than_one_that_was_not_seen(fitted: inference.Fit) -> None:
    known, unseen = (fitted.model.market(fitted.data, fitted.draws, zone) for zone in ("z1", None))
    assert known.theta[0, :, 0].std() < 0.5 * unseen.theta[0, :, 0].std()
    expected = np.log(3600.0) + 0.3
    assert known.theta[0, :, 0].mean() == pytest.approx(expected, abs=0.5)
    with pytest.raises(FitError, match="did you mean"):
        fitted.model.market(fitted.data, fitted.draws, "z11")


def test_a_zone_that_was_not_seen_is_like_one_that_was(fitted: inference.Fit) -> None:
    """Of four zones: no draw of its median lies outside of what they show, where a normal population reaches farther."""
    unseen = fitted.model.market(fitted.data, fitted.draws, None)
    seen = [fitted.model.market(fitted.data, fitted.draws, f"z{n}") for n in range(4)]
    low, high = min(one.theta[0, :, 0].min() for one in seen), max(one.theta[0, :, 0].max() for one in seen)
    assert low <= unseen.theta[0, :, 0].min() <= unseen.theta[0, :, 0].max() <= high
    assert not unseen.node_slope.any()
    for one in seen:  # each as likely: 50 of 200 draws come from each, 5 standard deviations are 31
        near = np.abs(unseen.theta[0, :, 0] - np.median(one.theta[0, :, 0])) < 0.2
        assert near.sum() > 15


def test_few_zones_are_a_population(fitted: inference.Fit) -> None:
    tables = [spot_trace(seed, 120, 4, f"z{seed}") for seed in range(3)]
    few = inference.fit(
        pd.concat(tables, ignore_index=True), model="revocation", method="map", key=jax.random.key(0), settings=SMALL
    )
    assert few.model.market(few.data, few.draws, None).node_slope.any()


def test_capacity_that_was_probed_is_there_for_all_nodes_or_for_none() -> None:
    tables = [spot_trace(seed, 120, 1, f"z{seed}") for seed in range(4)]
    fit = inference.fit(
        pd.concat(tables, ignore_index=True), model="revocation", method="map", key=jax.random.key(0), settings=SMALL
    )
    for zone in ("z1", None):
        np.testing.assert_array_equal(fit.model.market(fit.data, fit.draws, zone).losses, [[0.0, 0.0, 1.0]] * 200)


def test_a_fit_survives_its_file(fitted: inference.Fit, tmp_path: Path) -> None:
    fitted.save(tmp_path / "spot.npz")
    again = inference.Fit.load(tmp_path / "spot.npz")
    one, other = (fit.spot_market("z0", force=True) for fit in (fitted, again))
    assert one == other
    assert again.summary()["about"] == fitted.summary()["about"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"duration_s": -60.0}, "row 4: duration_s -60.0 must be above 0"),
        ({"duration_s": np.nan}, "row 4: duration_s is missing"),
        ({"duration_s": np.inf}, "row 4: duration_s inf is infinite"),
        ({"start_s": -1.0}, "row 4: start_s -1.0 must be at least 0"),
        ({"start_s": 1.0}, "starts before the row of the same trace"),
        ({"available": 9.0}, "more than nodes"),
        ({"available": -1.0}, "row 4: available -1.0 must be at least 0"),
        ({"available": 0.5}, "whole number"),
        ({"censored_right": 2.0}, "censored_right must be 0 or 1"),
        ({"requested_nodes": 0.0}, "nodes 0.0 must be above 0"),
        ({"zone": ""}, "row 4: zone is missing"),
        ({"kind": "probe"}, "kind 'probe' is not known"),
    ],
)
def test_wrong_rows_are_refused(change: dict[str, object], says: str) -> None:
    table = spot_trace(0, 12, 4, "z").assign(kind="availability")
    for name, value in change.items():
        table[name] = table[name].astype(object)
        table.loc[3, name] = value
    with pytest.raises(DataError, match=says.replace("'", ".")):
        from_frame(inference.measured(table, "revocation").frame)


def test_a_trace_in_which_nothing_ends_is_refused() -> None:
    table = spot_trace(0, 1, 4, "z").assign(available=4)
    with pytest.raises(DataError, match="no spell of availability ended"):
        from_frame(inference.measured(table, "revocation").frame)


def test_the_populations_share_nothing(fitted: inference.Fit) -> None:
    """The joint density of all is the product of theirs, wherever it is looked at."""
    model: Any = fitted.model
    with jax.enable_x64(True):
        whole = program(model, fitted.data, jax.random.key(0))
        parts = {
            name: program(part, data, jax.random.key(0)) for name, (part, data) in model.parts(fitted.data).items()
        }
        rng = np.random.default_rng(0)
        for _ in range(3):
            sites = {name: value + 0.3 * rng.standard_normal(np.shape(value)) for name, value in whole.start.items()}
            own = {name: {site: sites[f"{name}/{site}"] for site in part.start} for name, part in parts.items()}
            total = sum(float(part.potential(part.arrays, own[name])) for name, part in parts.items())
            assert float(whole.potential(whole.arrays, sites)) == pytest.approx(total, rel=1e-12)
        assert whole.n_dim == sum(part.n_dim for part in parts.values())


def test_weighted_draws_pass_their_checks_on_many_zones() -> None:
    """Zones of one node or several, long traces and short ones, one that never ends: what a table of traces is made of."""
    nodes = (1, 1, 4, 1, 16, 1, 1, 4)
    tables = [spot_trace(seed, 20 + 40 * (seed % 3), n, f"z{seed}", 0.8 + 0.1 * seed) for seed, n in enumerate(nodes)]
    tables.append(spot_trace(0, 1, 1, "still up").assign(available=1))
    table = pd.concat(tables, ignore_index=True)
    found = inference.fit(table, model="revocation", method="map", key=jax.random.key(0))
    assert found.verdict.ok, found.verdict.sentence
    assert found.verdict.k_hat < 0.7


@pytest.mark.slow
def test_the_default_fit_passes_its_checks_on_few_zones() -> None:
    """Three zones of single nodes, where weighted draws fail theirs."""
    table = pd.concat([spot_trace(seed, 60, 1, f"z{seed}") for seed in range(3)], ignore_index=True)
    found = inference.fit(table, model="revocation", key=jax.random.key(0))
    assert found.verdict.ok, found.verdict.sentence
