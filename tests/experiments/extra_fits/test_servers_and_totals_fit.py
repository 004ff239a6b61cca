# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Totals and servers: laws that were put in are found again, groups left out, wrong tables refused."""

import json
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import experiments.extra_fits
import inference
from experiments.servers_fit.law import ServerLaw, saturating
from experiments.totals_fit.model import activations
from inference.fitting.holdout import holdout
from prism_jax.core.errors import DataError, FitError, SpecError
from prism_jax.fits.models import model_named
from prism_jax.workload.cnn.spec import CnnSpec
from tests.inference import small_laws as tables

KEY = jax.random.key(0)
ONE = np.ones(1)


def fitted(name: str, frame: pd.DataFrame) -> Any:
    method = "nuts" if name == "servers" else "map"
    return inference.fit(frame, model=name, method=method, key=KEY, settings=inference.Settings(n_chain=2, n_draw=200))


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


def test_a_fit_of_totals_has_no_law() -> None:
    with pytest.raises(FitError, match="no law to hand out"):
        fitted("totals", tables.totals(np.random.default_rng(0), n_model=6)).law()


def test_few_workers_are_free_of_the_server_and_many_fill_it() -> None:
    law = ServerLaw(10.0 * ONE, 80.0 * ONE, 4.0 * ONE, 8)
    assert law.steps_per_s(1) == pytest.approx(10.0, rel=1e-3)
    assert law.steps_per_s(1000) == pytest.approx(80.0, rel=1e-3)
    assert law.steps_per_s(8) == pytest.approx(80.0 * 2.0**-0.25)
    assert law.steps_per_s(16, 2) == pytest.approx(2.0 * law.steps_per_s(8))


def test_a_sharp_law_is_the_minimum_and_none_overflows() -> None:
    offered = np.array([1e-200, 3.0, 1e200])
    found = saturating(offered, np.full(3, 5.0), np.full(3, 1e3))
    np.testing.assert_allclose(found, [1e-200, 3.0, 5.0])


def test_wrong_figures_of_servers_are_refused() -> None:
    with pytest.raises(SpecError, match="server_per_s"):
        ServerLaw(ONE, 0.0 * ONE, ONE, 1)
    with pytest.raises(SpecError, match="n_workers"):
        ServerLaw(ONE, ONE, ONE, 1).steps_per_s(0)


WRONG = {
    "gpu": ("totals", tables.totals(np.random.default_rng(0)).assign(gpu="nogpu"), "gpu nogpu"),
    "huge": ("totals", tables.totals(np.random.default_rng(0)).assign(flops=1e308, batch=1e308), "too large"),
    "workers": ("servers", tables.servers(np.random.default_rng(0)).assign(workers=0.0), "at least 1"),
    "speed": ("servers", tables.servers(np.random.default_rng(0)).assign(steps_per_s=0.0), "above 0"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_wrong_tables_are_refused(what: str) -> None:
    name, frame, said = WRONG[what]
    with pytest.raises(DataError, match=said):
        inference.fit(frame, model=name, key=KEY)


@pytest.mark.parametrize("name", ["totals", "servers"])
def test_they_are_costs(name: str) -> None:
    with pytest.raises(FitError, match="not how steps vary"):
        model_named(name).variability(None, {})


def test_the_command_prints_the_fit(tmp_path, capsys, monkeypatch) -> None:
    file = tmp_path / "totals.csv"
    tables.totals(np.random.default_rng(0), n_model=6).to_csv(file, index=False)
    monkeypatch.setattr("sys.argv", ["fit", str(file), "--method", "map", "--json"])
    with pytest.raises(SystemExit):
        experiments.extra_fits.main("totals")
    assert json.loads(capsys.readouterr().out)["model"] == "totals"
