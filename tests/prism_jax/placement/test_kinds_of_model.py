"""Every kind of model of layers is checked, predicted, explained, searched and placed as decoders are."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

from prism_jax import load_job, predict
from prism_jax.placement.place import Effort, place
from prism_jax.placement.place_nodes import place_nodes
from prism_jax.search.exhaustive import search
from prism_jax.search.space import default_space
from prism_jax.shell.app import main
from prism_jax.variability.tree import Variability

JOBS = {"bert-base": "seq_len: 128, ", "t5-small": "seq_len: 128, ", "vit-b-16": "", "dit-s-2": ""}
UNITS = {"bert-base": 128, "t5-small": 128, "vit-b-16": 1, "dit-s-2": 1}
EFFORT = Effort(n_random=4, n_step=4, n_relaxed=0, n_fresh=8, n_kept=2)


@pytest.fixture(params=JOBS)
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / f"{request.param}.yaml"
    file.write_text(
        f"model: {request.param}\ncluster: {{preset: dgx-a100, n_devices: 16}}\n"
        f"plan: {{dp: 16, micro_batch: 4, global_batch: 128, {JOBS[request.param]}dtype: bf16}}\nvariability: a100-default\n"
    )
    return file


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON that a command prints."""
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_check_and_show_know_it(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = said(capsys, "check", str(job))
    assert checked["n_params"] == load_job(job).model.n_params()
    assert said(capsys, "show", "models", job.stem)["n_params"] == checked["n_params"]
    assert main(["check", str(job), "--set", "plan.tp=5"]) == 2  # heads that tp does not divide
    assert "attention heads" in capsys.readouterr().err


def test_variability_widens_its_steps(job: Path) -> None:
    read = load_job(job)
    step = predict(read, key=jax.random.key(0), n_samples=64)
    still = predict(replace(read, variability=Variability()), key=jax.random.key(0), n_samples=64)
    assert step.quantile(0.99) > step.quantile(0.5) > still.quantile(0.5)


def test_search_finds_a_plan(job: Path) -> None:
    read = load_job(job)
    space = replace(
        default_space(read), schedule=("1f1b",), micro_batch=(2, 8), recompute=("none",), tp=(1, 2), pp=(1, 2)
    )
    best = search(read, space=space, seed=0).best
    assert best is not None
    assert best.plan.n_devices == 16


@pytest.mark.slow
def test_predict_explains_it(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "predict", str(job), "--samples", "64")
    assert sum(found["breakdown_s"].values()) == pytest.approx(found["step_time_s"]["mean"], rel=0.05)
    rate = 128 * UNITS[job.stem] / found["step_time_s"]["mean"] / 16
    assert found["tokens_per_s_per_gpu"] == pytest.approx(rate, rel=0.05)
    assert found["memory_bytes_per_gpu"]["total"] > 0.0


@pytest.mark.slow
def test_place_moves_slow_nodes(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prism_jax.placement.place.place", partial(place, effort=EFFORT))
    (tmp_path / "nodes.csv").write_text("host,slowdown\na,1.0\nb,1.05\nc,1.5\n")
    report = place_nodes(str(job), str(tmp_path / "nodes.csv"), spares=1)
    assert report.spare_hosts == ("c",)
