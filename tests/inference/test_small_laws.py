# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Ladders, saves and starts: laws that were put in are found again, groups left out, wrong tables refused."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import inference
from inference.sums import SumsData, log_seconds
from prism_jax.core.errors import DataError, FitError
from prism_jax.fits.models import model_named
from prism_jax.slowdowns.slowdowns_file import read_slowdowns
from tests.inference import small_laws as tables

KEY = jax.random.key(0)


def fitted(name: str, frame: pd.DataFrame) -> Any:
    return inference.fit(frame, model=name, method="map", key=KEY, settings=inference.Settings(n_chain=2, n_draw=200))


def test_floor_and_rate_of_a_ladder_are_found() -> None:
    fit = fitted("ladder", tables.ladder(np.random.default_rng(0)))
    law = fit.model.law(fit.data, fit.draws)
    floor, rate = (np.quantile(x, [0.005, 0.995]) for x in (law.floor_s, law.s_per_sample))
    assert floor[0] < 0.020 < floor[1]
    assert rate[0] < 1e-3 < rate[1]
    assert law.interval(256.0)[1] == pytest.approx(0.276, rel=0.01)
    assert law.extrapolates(256.0)
    assert not law.extrapolates(32.0)


def test_what_a_fit_has_not_seen_is_drawn() -> None:
    """A GPU beyond the fit widens the prediction by the spread of GPUs, and shares one effect among its rows."""
    data = SumsData(
        terms=("a",), factor=np.ones(1), levels=("gpu",), spread=np.array([0.3]), effects=("gpu k",), level=np.zeros(1, int),
        uneven=-1, size=np.ones((1, 1)), member=np.ones((1, 1)), log_s=np.zeros(1), n=np.ones(1), within=0.0, n_within=0,
    )  # fmt: skip
    n = 20_000
    draws = {
        "log_factor": np.zeros((n, 1)),
        "deviation": np.zeros((n, 1)),
        "misfit": np.full(n, 1e-6),
        "noise": np.full(n, 1e-6),
    }
    found = log_seconds(data, draws, np.ones((3, 1)), [["k", "new", "new"]], np.random.default_rng(0))
    assert found.std(axis=0) == pytest.approx([0.0, 0.3, 0.3], abs=0.01)
    np.testing.assert_allclose(found[:, 1], found[:, 2], atol=1e-4)


def test_rates_of_saves_are_found() -> None:
    fit = fitted("saves", tables.saves(np.random.default_rng(5)))
    factor = np.median(np.exp(fit.draws["log_factor"]), axis=0)
    assert factor[:3] == pytest.approx([3.0, 2.0, 1.0], rel=0.15)


def test_starts_in_a_region_that_was_not_measured() -> None:
    frame = tables.starts(np.random.default_rng(8))
    fit = fitted("startup", frame[frame["region"] != "c"])
    law = fit.model.law(fit.data, fit.draws, "preemptible")
    assert law.quantile(0.5) == pytest.approx(83.8, rel=0.05)
    (score,) = fit.model.score(fit.data, fit.draws, frame[frame["region"] == "c"], "region", KEY)
    assert score.coverage_90 > 0.85
    assert score.extra["crps_s"] < score.extra["crps_pooled_s"]


def test_a_slow_nic_is_told_from_slow_days(tmp_path: Path) -> None:
    frame = tables.links(np.random.default_rng(2))
    fit = fitted("links", frame[frame["node"] != "n7"])
    told = fit.model.describe(fit.data, fit.draws)
    assert (told["nodes"][0]["name"], told["nodes"][0]["n_nodes"]) == ("n3", "2")
    assert told["nodes"][0]["slower"]["median"] == pytest.approx(0.5, abs=0.05)
    assert told["notes"] == [f"slow for good: n3 {told['nodes'][0]['slower']['median']:+.0%} (scale 2)"]
    for part, true in (("passing", 0.02), ("noise", 0.005)):
        found = told["scales"]["1"][f"{part}_cv"]
        assert found["p5"] * 0.9 < true < found["p95"] * 1.1
    table = fit.model.slowdowns(fit.data, fit.draws)
    checks = fit.check()
    assert checks is not None
    assert abs(checks.coverage(0.9) - 0.9) <= 0.1
    table.to_csv(tmp_path / "links.csv", index=False)
    hosts = [f"n{node}" for node in range(12)]
    read = read_slowdowns(tmp_path / "links.csv", 96, 8, hosts).factors
    assert max(read["nic"], key=lambda device: read["nic"][device]) // 8 == 3
    assert set(read) == {"link", "nic"}
    tree = fit.model.variability(fit.data, {name: value.mean(axis=0) for name, value in fit.draws.items()})
    assert tree.of("all_reduce").node.cv > 0.02
    (score,) = fit.model.score(fit.data, fit.draws, frame[frame["node"] == "n7"], "node", KEY)
    assert score.coverage_90 > 0.6


WRONG = {
    "one batch": ("ladder", tables.ladder(np.random.default_rng(0)).query("batch == 8"), "1 batch size"),
    "no batch": ("ladder", tables.ladder(np.random.default_rng(0)).assign(batch=-1.0), "batch"),
    "one day": ("links", tables.links(np.random.default_rng(0)).query("day == '2025-03-01'"), "several days"),
    "start": ("startup", tables.starts(np.random.default_rng(0)).assign(booting_s=-1.0), "above 0"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_tables_are_refused(what: str) -> None:
    name, frame, said = WRONG[what]
    with pytest.raises(DataError, match=said):
        inference.fit(frame, model=name, key=KEY)


def test_names_that_a_fit_does_not_have_are_refused() -> None:
    model = model_named("ladder")
    frame = pd.concat([tables.ladder(np.random.default_rng(0), setup=name) for name in "ab"])
    data = model.prepare(inference.measured(frame, "ladder").frame)
    draws = {name: np.asarray(value)[None] for name, value in model.start(data).items()}
    for setup in ("", "c"):
        with pytest.raises(FitError, match="Name one of them"):
            model.law(data, draws, setup)


@pytest.mark.parametrize("name", ["ladder", "saves", "startup"])
def test_they_are_costs(name: str) -> None:
    with pytest.raises(FitError, match="not how steps vary"):
        model_named(name).variability(None, {})
