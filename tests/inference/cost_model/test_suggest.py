"""Which jobs to measure: one of every kind, whatever their order, and no measured time is looked at."""

import json
from pathlib import Path

import numpy as np
import pytest

from inference.cost_model.suggest import suggest_runs, unalike
from prism_jax.core.errors import DataError
from prism_jax.shell.app import main

JOB = """\
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
"""


def test_one_of_every_cluster_is_picked() -> None:
    rng = np.random.default_rng(0)
    kind = rng.permutation(np.repeat(np.arange(4), [3, 9, 5, 20]))
    parts = np.eye(4, 14)[kind] + 0.02 * rng.normal(size=(len(kind), 14))
    chosen = unalike(parts, 4)
    assert sorted(kind[chosen]) == [0, 1, 2, 3]
    assert (np.diff(chosen) > 0).all()


def test_one_pick_is_the_median_and_no_more_are_picked_than_there_are() -> None:
    line = np.array([[0.0], [1.0], [2.0], [3.0], [40.0]])
    assert unalike(line, 1).tolist() == [2]
    assert unalike(line, 9).tolist() == [0, 1, 2, 3, 4]


def test_more_picks_are_never_farther_from_the_rest() -> None:
    parts = np.random.default_rng(1).normal(size=(40, 5))
    apart = np.linalg.norm(parts[:, None] - parts[None], axis=-1)
    left = [apart[:, unalike(parts, n)].min(axis=1).sum() for n in range(1, 12)]
    assert (np.diff(left) < 0.0).all()


def write(folder: Path, *changes: str) -> str:
    (folder / "job.yaml").write_text(JOB)
    table = folder / "jobs.csv"
    table.write_text("\n".join(["id,job,set", *(f"{i},job.yaml,{change}" for i, change in enumerate(changes))]))
    return str(table)


def test_jobs_alike_stand_for_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alike = [f"plan.global_batch={n}" for n in (800, 1600, 2400)]
    table = write(tmp_path, *alike, "model.hidden=8192 plan.micro_batch=8 plan.global_batch=64")
    assert main(["calibrate", table, "--suggest", "2", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["stands_for"] for one in found["suggested"]] == [3, 1]
    assert found["suggested"][1]["id"] == "3"
    assert found["n_job"] == 4
    assert main(["calibrate", table, "--suggest", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("measure these 2 of 4 jobs first")
    assert "matrix products" in lines[-1]


def test_what_cannot_be_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("id,gpu\n1,H100\n")
    with pytest.raises(DataError, match="unknown column .gpu."):
        suggest_runs(tmp_path / "rows.csv", 2)
    assert main(["calibrate", write(tmp_path, ""), "--suggest", "2", "-o", str(tmp_path / "x.npz")]) == 2
    assert "--suggest: can be combined with --json only" in capsys.readouterr().err
