"""Which jobs to measure: those that narrow the others most by the law of the site, and no measured time is looked at."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from inference.cost_model.site_runs import SiteRuns
from inference.cost_model.suggest import JobLaw, job_law, suggest_runs
from prism_jax.core.errors import DataError
from prism_jax.shell.app import main
from tests.inference.cost_model.sites import population, runs_of

JOB = """\
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
"""


def known() -> tuple[SiteRuns, JobLaw]:
    runs = runs_of()
    return runs, job_law(population(), runs)


def test_the_variance_after_runs_is_that_of_a_normal_law() -> None:
    _, law = known()
    seen = [4, 8, 1]
    after = law
    for at in seen:
        after = after.after(at)
    inner = law.covariance[np.ix_(seen, seen)] + np.diag(law.own[seen])
    told = law.covariance[:, seen] @ np.linalg.solve(inner, law.covariance[seen])
    np.testing.assert_allclose(after.covariance, law.covariance - told, atol=1e-12)


def test_the_first_job_is_the_best_of_all_and_every_further_one_narrows_the_rest() -> None:
    runs, law = known()
    every = range(runs.n_run)
    found = law.best(5, every)
    assert found[0][1] == pytest.approx(min(law.after(at).sd(every) for at in every))
    assert (np.diff([law.sd(every), *(sd for _, sd in found)]) < 0.0).all()
    assert len({at for at, _ in law.best(99, every)}) == runs.n_run


def test_a_job_asked_about_is_measured_itself() -> None:
    runs, law = known()
    assert [law.best(1, [at])[0][0] for at in range(runs.n_run)] == [*range(runs.n_run)]


def test_no_measured_time_is_looked_at() -> None:
    runs, law = known()
    other = job_law(population(), replace(runs, log_measured=runs.log_measured + np.arange(runs.n_run)))
    np.testing.assert_array_equal(law.covariance, other.covariance)


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
    assert sorted((one["stands_for"], one["id"] == "3") for one in found["suggested"]) == [(1, True), (3, False)]
    assert found["log_sd"] > found["suggested"][0]["log_sd_after"] > found["suggested"][1]["log_sd_after"]
    assert main(["calibrate", table, "--suggest", "1", "--for", "3", "--json", "-q"]) == 0
    assert [one["id"] for one in json.loads(capsys.readouterr().out)["suggested"]] == ["3"]
    assert found["n_job"] == 4
    assert main(["calibrate", table, "--suggest", "2", "--details"]) == 0
    text = capsys.readouterr().out
    assert "Measure 2 jobs first, in this order: " in text
    assert "Measure these 2 of 4 jobs first" in text
    assert "matrix products" in text


def test_jobs_of_one_version_alone_are_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write(tmp_path, "plan.global_batch=800", "plan.global_batch=1600", "plan.global_batch=2400")
    first, *rows = Path(table).read_text().splitlines()
    versions = ("1.0", "2.0", "2.0")
    Path(table).write_text("\n".join([f"{first},version", *(f"{r},{v}" for r, v in zip(rows, versions, strict=True))]))
    assert main(["calibrate", table, "--suggest", "3"]) == 2
    assert "--only '1.0'" in capsys.readouterr().err
    assert main(["calibrate", table, "--suggest", "3", "--only", "2.0", "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(one["id"] for one in found["suggested"]) == ["1", "2"]
    assert found["n_job"] == 2


def test_what_cannot_be_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("id,gpu\n1,H100\n")
    with pytest.raises(DataError, match="unknown column .gpu."):
        suggest_runs(tmp_path / "rows.csv", 2)
    assert main(["calibrate", write(tmp_path, ""), "--suggest", "2", "-o", str(tmp_path / "x.npz")]) == 2
    assert "--suggest: can be combined with --for, --only and --json" in capsys.readouterr().err
    assert main(["calibrate", write(tmp_path, ""), "--suggest", "2", "--for", "x"]) == 2
    assert "--for x: jobs.csv has no such row" in capsys.readouterr().err
    assert main(["calibrate", write(tmp_path, ""), "--for", "0"]) == 2
