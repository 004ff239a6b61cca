# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Ladders, totals, servers, saves and starts: laws that were put in are found again, groups left out, wrong tables refused."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import inference
from inference.holdout import holdout
from inference.models import model_named
from inference.models.sums import SumsData, log_seconds
from inference.models.totals import activations
from prism_jax.errors import DataError, FitError
from prism_jax.workload.cnn.spec import CnnSpec
from tests.inference.models.small_laws import tables

KEY = jax.random.key(0)


def fitted(name: str, frame: pd.DataFrame) -> Any:
    method = "nuts" if name == "servers" else "map"
    return inference.fit(frame, model=name, method=method, key=KEY, settings=inference.Settings(n_chain=2, n_draw=200))


def test_floor_and_rate_of_a_ladder_are_found() -> None:
    fit = fitted("ladder", tables.ladder(np.random.default_rng(0)))
    law = fit.model.law(fit.data, fit.draws)
    floor, rate = (np.quantile(x, [0.005, 0.995]) for x in (law.floor_s, law.s_per_sample))
    assert floor[0] < 0.020 < floor[1]
    assert rate[0] < 1e-3 < rate[1]
    assert law.interval(256.0)[1] == pytest.approx(0.276, rel=0.01)
    assert law.extrapolates(256.0)
    assert not law.extrapolates(32.0)


def test_factors_of_totals_are_found_and_carry_to_another_gpu() -> None:
    """Nothing but the datasheet tells the two GPUs apart here."""
    rng = np.random.default_rng(1)
    fit = fitted("totals", tables.totals(rng))
    factor = np.exp(fit.draws["log_factor"]) * np.exp(fit.model.levels["gpu"] * fit.draws["deviation"][:, -1:])
    low, high = np.quantile(factor, [0.02, 0.98], axis=0)
    assert (low[:1] < 2.0).all()
    assert (high[:1] > 2.0).all()
    other = tables.totals(np.random.default_rng(2), gpus=("v100",))
    predicted = fit.model.predict(fit.data, fit.draws, other, rng)
    ratio = np.exp(np.median(predicted, axis=0)) / other["step_s"]
    assert float(np.median(np.abs(ratio - 1.0))) < 0.1
    low, high = np.exp(np.quantile(predicted, [0.05, 0.95], axis=0))
    assert ((low < other["step_s"]) & (other["step_s"] < high)).mean() > 0.8


@pytest.mark.slow
def test_networks_that_were_left_out() -> None:
    found = inference.measured(tables.totals(np.random.default_rng(3), n_model=8), "totals")
    scored = holdout(found, model="totals", column="model", key=KEY)
    assert len(scored.scores) == 8
    figures = scored.as_dict()
    assert figures["mape"] < 0.03 < figures["mape_trivial"]


def test_repeats_are_one_cell() -> None:
    frame = tables.totals(np.random.default_rng(4))
    often = pd.concat([frame, frame[frame["model"] == "m0"]], ignore_index=True)
    model = model_named("totals")
    once, twice = model.prepare(frame), model.prepare(often)
    np.testing.assert_allclose(once.log_s, twice.log_s)
    assert len(once.log_s) == 16
    assert twice.n.sum() == once.n.sum() + 3


def test_activations_are_those_of_equal_convolutions() -> None:
    """Ten of 3x3, 16 to 16 channels, on 32 x 32."""
    n, width, pixels = 10, 16, 1024
    flops, n_params = 3.0 * 2.0 * 9.0 * width**2 * pixels * n, 9.0 * width**2 * n
    found = activations(np.array([flops]), np.array([n_params]), np.array([3.0 * n]))
    assert found[0] == pytest.approx(n * width * pixels)


def test_activations_are_near_those_of_a_network_of_totals() -> None:
    network = CnnSpec("x", "cm-dare-custom4").network
    results = sum(layer.outputs.elements for layer in network.layers if layer.op == "conv")
    totals = (network.train_flops, network.n_params, network.n_tensors)
    assert float(activations(*map(np.atleast_1d, totals))[0]) == pytest.approx(results, rel=0.1)


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


def test_a_server_that_saturates_is_found() -> None:
    fit = fitted("servers", tables.servers(np.random.default_rng(6)))
    law = fit.model.law(fit.data, fit.draws, "net k80")
    assert float(np.median(law.worker_per_s)) == pytest.approx(10.0, rel=0.02)
    assert float(np.median(law.server_per_s)) == pytest.approx(40.0, rel=0.05)
    assert float(np.median(law.steps_per_s(16))) == pytest.approx(40.0, rel=0.05)


@pytest.mark.slow
def test_clusters_that_were_left_out_beat_proportion_where_servers_saturate() -> None:
    frame = tables.servers(np.random.default_rng(7))
    fit = fitted("servers", frame[frame["workers"] <= 6])
    rest = inference.measured(frame[frame["workers"] > 6], "servers").frame
    (score,) = fit.model.score(fit.data, fit.draws, rest, "model", KEY)
    assert score.extra["mape"] < 0.05 < score.extra["mape_trivial"]


def test_starts_in_a_region_that_was_not_measured() -> None:
    frame = tables.starts(np.random.default_rng(8))
    fit = fitted("startup", frame[frame["region"] != "c"])
    law = fit.model.law(fit.data, fit.draws, "preemptible")
    assert law.quantile(0.5) == pytest.approx(83.8, rel=0.05)
    (score,) = fit.model.score(fit.data, fit.draws, frame[frame["region"] == "c"], "region", KEY)
    assert score.coverage_90 > 0.85
    assert score.extra["crps_s"] < score.extra["crps_pooled_s"]


WRONG = {
    "one batch": ("ladder", tables.ladder(np.random.default_rng(0)).query("batch == 8"), "1 batch size"),
    "no batch": ("ladder", tables.ladder(np.random.default_rng(0)).assign(batch=-1.0), "batch"),
    "gpu": ("totals", tables.totals(np.random.default_rng(0)).assign(gpu="nogpu"), "gpu nogpu"),
    "huge": ("totals", tables.totals(np.random.default_rng(0)).assign(flops=1e308, batch=1e308), "too large"),
    "workers": ("servers", tables.servers(np.random.default_rng(0)).assign(workers=0.0), "at least 1"),
    "speed": ("servers", tables.servers(np.random.default_rng(0)).assign(steps_per_s=0.0), "above 0"),
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


@pytest.mark.parametrize("name", ["ladder", "totals", "servers", "saves", "startup"])
def test_they_are_costs(name: str) -> None:
    with pytest.raises(FitError, match="not how steps vary"):
        model_named(name).variability(None, {})


def test_a_fit_of_totals_has_no_law() -> None:
    with pytest.raises(FitError, match="no law to hand out"):
        fitted("totals", tables.totals(np.random.default_rng(0), n_model=6)).law()
