"""`prism-jax fit` from a table to a prediction, on a small simulated fleet; and what is said of every wrong input."""

import contextlib
import io
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import inference
from prism_jax.fits.report import share_text
from prism_jax.shell.app import main
from tests.support.files.archives import changed

ROOT = Path(__file__).resolve().parents[3]
GPU_SPREAD, RUN_SPREAD = 0.03, 0.01
JOB = """\
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
"""
JAX_IS_ABSENT = """\
import sys
from prism_jax.shell.app import main
code = main(sys.argv[1:])
loaded = {"jax", "numpyro", "pandas", "inference", "matplotlib"} & set(sys.modules)
sys.exit(f"loaded {sorted(loaded)}" if loaded else code)
"""


def fleet_table() -> pd.DataFrame:
    """40 GPUs on 10 nodes, 5 runs each; milliseconds."""
    rng = np.random.default_rng(4)
    gpu = np.repeat(np.arange(40), 5)
    log = GPU_SPREAD * rng.standard_normal(40)[gpu] + RUN_SPREAD * rng.standard_normal(len(gpu))
    return pd.DataFrame(
        {"gpu": [f"gpu{i:02d}" for i in gpu], "node": [f"node{i // 4}" for i in gpu], "time_ms": 20.0 * np.exp(log)}
    )


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """In place of the one of all these tests: NumPyro relies on promotion."""


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("fleet") / "fleet.csv"
    fleet_table().to_csv(file, index=False)
    return file


def run_alone(*arguments: str) -> subprocess.CompletedProcess:
    """In a process of its own, with the strictness of these tests."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", JAX_IS_ABSENT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@pytest.fixture(scope="module")
def kept(table) -> tuple[Path, dict]:
    """The file of a fit, and what --json says of it."""
    file = table.with_suffix(".npz")
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        assert main(["fit", "fleet", str(table), "--method", "map", "--json", "-o", str(file)]) == 0
    return file, json.loads(stream.getvalue())


@pytest.fixture
def failed(kept, tmp_path) -> Path:
    """The same fit with a failed verdict."""
    file = tmp_path / "failed.npz"
    file.write_bytes(kept[0].read_bytes())
    changed(file, lambda about, _: about["verdict"].update(ok=False, sentence="failed: the chains disagree"))
    return file


@pytest.fixture
def job(tmp_path) -> str:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def one_line(capsys) -> str:
    """What was said on stderr: one line, and no traceback."""
    said = capsys.readouterr().err.strip()
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1, said
    return said


def test_json_says_what_was_fitted_and_from_what(kept, table):
    file, found = kept
    assert (found["kind"], found["model"], found["method"]) == ("fit", "fleet", "map")
    assert found["verdict"]["ok"] is True
    assert found["verdict"]["k_hat"] < 0.7
    assert found["hygiene"]["n_read"] == found["hygiene"]["n_kept"] == 200
    assert sum(found["variance_shares"].values()) == pytest.approx(1.0, abs=0.05), "medians of shares that sum to one"
    assert found["inputs"]["files"] == [str(table)]
    assert found["seed"] == 0
    assert {"prism-jax", "jax", "numpy"} <= set(found["versions"])
    assert file.stat().st_size > 0
    assert not Path(f"{file}.partial").exists()


def test_the_spread_of_the_simulated_gpus_is_found(kept):
    """Standard error of the sd of 40 GPUs is 11%; five of them, on draws of the kept fit."""
    import inference

    draws = inference.Fit.load(kept[0]).draws
    total = np.hypot(draws["gpu_spread"], draws["node_spread"]).mean()
    assert total == pytest.approx(GPU_SPREAD, rel=0.55)
    assert draws["rest_spread"].mean() == pytest.approx(RUN_SPREAD, rel=0.3)  # 160 degrees of freedom: 5.6%
    assert np.exp(draws["typical_log_s"].mean()) == pytest.approx(20e-3, rel=5 * GPU_SPREAD / np.sqrt(40))


def test_steps_are_fitted_reported_and_drawn(tmp_path, capsys):
    rng = np.random.default_rng(3)
    run = np.repeat(np.arange(24), 60)
    duration_s = 0.5 * np.exp((0.004 + 0.002 * (run % 8)) * rng.standard_normal(len(run)))
    labels = {"run": run, "system": run // 3, "benchmark": run // 12, "n_gpus": 8.0 * 2 ** (run // 3 % 3)}
    pd.DataFrame({**labels, "duration_s": duration_s}).to_csv(tmp_path / "steps.csv", index=False)
    file, picture = tmp_path / "steps.npz", tmp_path / "steps.png"
    assert main(["fit", "steps", str(tmp_path / "steps.csv"), "--method", "map", "-o", str(file), "--details"]) == 0
    fitted = capsys.readouterr().out
    assert main(["fit", "report", str(file), "--plot", str(picture), "--details"]) == 0
    for said in (fitted, capsys.readouterr().out):
        assert "Share of the variance of how far p99 lies above the median" in said
        assert "shares of the same for p95" in said
        assert " 0.0%" not in said
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_report_repeats_in_text_what_json_says(kept, capsys):
    file, found = kept
    assert main(["fit", "report", str(file), "--details"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("fleet fitted by map in ")
    said = " ".join(text.split())
    for part in (
        found["verdict"]["sentence"].partition(": ")[2],
        "200 of 200 rows",
        "Share of the variance",
        "median, 90% interval",
        "Fitted rows, replicated",
    ):
        assert part in said


def test_a_share_that_is_not_known_to_three_points_is_a_range():
    assert share_text(0.35, {"median": 0.35, "p5": 0.312, "p95": 0.386}) == "31 to 39%"
    assert share_text(0.35, {"median": 0.35, "p5": 0.33, "p95": 0.38}) == "35.0%"
    assert share_text(0.004, None) == "0.4%"


def test_report_adds_checks_and_a_picture(kept, tmp_path, capsys):
    file, found = kept
    picture = tmp_path / "fit.png"
    assert main(["fit", "report", str(file), "--json", "--plot", str(picture)]) == 0
    report = json.loads(capsys.readouterr().out)
    checks, replicated = report.pop("checks"), report.pop("replicated")
    assert len(replicated["level"]) == len(replicated["measured"]) == 40
    assert (report.pop("schema"), found["schema"]) == ("prism-jax/kept-fit/1", "prism-jax/fit/1")
    assert report == {name: value for name, value in found.items() if name != "schema"}
    assert checks["n"] == 40
    assert 0.6 < checks["coverage_90"] <= 1.0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow  # compiles most
def test_predict_uses_a_fit_and_says_how_far_it_can_be_trusted(kept, job, capsys, monkeypatch):
    file, _ = kept
    monkeypatch.setattr(import_module("prism_jax.fits.load_fits"), "N_DRAW", 4)
    options = ["predict", job, "--json", "--samples", "200"]
    assert main(options) == 0
    without = json.loads(capsys.readouterr().out)
    assert main([*options, "--fit", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "epistemic_s" not in without
    assert without["record"]["inputs"]["fit"] == []
    assert found["record"]["inputs"]["fit"] == [str(file)]
    assert found["step_time_s"]["p50"] != without["step_time_s"]["p50"]
    assert found["deterministic_s"] == without["deterministic_s"]
    assert {"p50", "p95", "p99"} <= set(found["epistemic_s"])
    for name, band in found["epistemic_s"].items():
        assert 0.0 < band["low"] < band["high"]
        assert band["low"] * 0.95 < found["step_time_s"][name] < band["high"] * 1.05


def test_a_failed_fit_is_refused_in_a_prediction(failed, job, capsys):
    assert main(["predict", job, "--fit", str(failed)]) == 2
    said = one_line(capsys)
    assert f"--fit {failed}: this fit is not used" in said
    assert "the chains disagree" in said
    assert "--force" in said
    assert "force=True" not in said, "words of the command line alone"


@pytest.mark.slow  # compiles
def test_a_fit_that_fails_its_checks_exits_with_1_and_is_kept_under_a_name_that_says_so(
    table, job, tmp_path, capsys, monkeypatch
):
    import inference.fitting.fit  # noqa: F401  (the module, for the line with sys.modules)
    from prism_jax.fits.report import Verdict

    bad = Verdict(False, "failed: the chains disagree", 1.5, 10.0, "gpu_spread", 0, np.nan, "chains")
    monkeypatch.setattr(sys.modules["inference.fitting.fit"], "_verdict", lambda *_: bad)
    asked, kept = tmp_path / "net.npz", tmp_path / "net.failed.npz"
    assert main(["fit", "fleet", str(table), "--method", "map", "-o", str(asked)]) == 1
    said = capsys.readouterr()
    assert "remedy: the chains disagree" in " ".join(said.out.split())
    assert f"predict --fit {kept}" in said.err
    assert "--force" in said.err
    assert kept.exists()
    assert not asked.exists()
    assert main(["fit", "fleet", str(table), "--method", "map", "-q", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"]["cause"] == "chains"
    assert main(["predict", job, "--fit", str(kept)]) == 2
    assert f"--fit {kept}: this fit is not used" in one_line(capsys)


@pytest.mark.slow  # compiles most
def test_a_log_of_the_job_sets_its_level(tmp_path, job, capsys, monkeypatch):
    monkeypatch.setattr(import_module("prism_jax.fits.load_fits"), "N_DRAW", 4)
    options = ["predict", job, "--json", "--samples", "200"]
    assert main(options) == 0
    without = json.loads(capsys.readouterr().out)
    step_s = 1.1 * without["step_time_s"]["p50"] * np.exp(0.02 * np.random.default_rng(0).standard_normal(300))
    pd.DataFrame({"run": "one", "duration_s": step_s}).to_csv(tmp_path / "log.csv", index=False)
    file = str(tmp_path / "steps.npz")
    assert main(["fit", "steps", str(tmp_path / "log.csv"), "-o", file, "--details"]) == 0
    assert "one run: not estimable" in capsys.readouterr().out
    assert main([*options, "--fit", file]) == 0
    found = json.loads(capsys.readouterr().out)
    logged_s = np.median(step_s[3:])
    assert found["step_time_s"]["p50"] == pytest.approx(logged_s, rel=1e-3)  # stalls are seconds of their own
    assert found["level"]["measured_s"] == pytest.approx(logged_s)
    assert found["model_band_s"]["p5"] < logged_s < found["model_band_s"]["p95"] < 1.1 * logged_s
    assert main([*options, "--fit", file, "--no-level"]) == 0
    left_out = json.loads(capsys.readouterr().out)
    assert "level" not in left_out
    assert left_out["step_time_s"]["p50"] == pytest.approx(found["level"]["predicted_s"])


def test_columns_units_and_rows_are_chosen_by_options(tmp_path, capsys):
    size = np.repeat([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 3)
    noise = np.exp(0.01 * np.random.default_rng(5).standard_normal(len(size)))
    table = pd.DataFrame({"images": size, "took": (3.0 + size) * noise, "kind": "good"})
    table = pd.concat([table, table.assign(kind="bad", took=9e9)])
    file = tmp_path / "ladder.csv"
    table.to_csv(file, index=False)
    options = ["--map", "batch=images", "--map", "step=took", "--unit", "step=ms", "--where", "kind=good"]
    assert main(["fit", "ladder", str(file), "--method", "map", "--seed", "5", "--json", *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["hygiene"]["n_kept"], found["hygiene"]["n_read"]) == (18, 36)
    assert found["about"]["setups"]["one"]["s_per_sample"]["median"] == pytest.approx(1e-3, rel=0.1)


@pytest.mark.slow
def test_groups_are_left_out_and_scored(table, capsys):
    assert main(["fit", "fleet", str(table), "--method", "map", "--holdout", "gpu", "--splits", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["holdout"]
    assert (found["column"], found["n_groups"], found["n_scores"]) == ("gpu", 40, 2)
    assert 0.0 < found["ks"] < 1.0
    assert found["ks_empirical"] is not None


def test_an_unknown_column_to_leave_out_is_one_line_before_anything_is_fitted(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(inference, "fit", lambda *_, **__: pytest.fail("the fit was begun"))
    file = tmp_path / "documents.csv"
    file.write_text("tokens,source\n" + "".join(f"{100 + at},wiki\n" for at in range(50)))
    assert main(["fit", "lengths", str(file), "--holdout", "sourc"]) == 2
    said = one_line(capsys)
    assert "--holdout sourc: no such column; there are tokens, source, did you mean source" in said
    assert "did you mean source" in said


@pytest.mark.parametrize("content", [None, b"", b"\x00\x01\x02\xff" * 50, b"a,b\n1,2\n", b"gpu,time_ms\nx,1\ny,2\n"])
def test_files_that_hold_no_fleet_are_one_line(content, tmp_path, capsys):
    file = tmp_path / "fleet.csv"
    if content is not None:
        file.write_bytes(content)
    assert main(["fit", "fleet", str(file), "--method", "map"]) == 2
    one_line(capsys)


@pytest.mark.parametrize("command", ["report", "predict"])
@pytest.mark.parametrize("content", [None, b"", b"gpu,time_ms\nx,1\n", b"\x89HDF\r\n\x1a\n"])
def test_files_that_are_no_fits_are_one_line(command, content, job, tmp_path, capsys):
    file = tmp_path / "fit.npz"
    if content is not None:
        file.write_bytes(content)
    arguments = ["fit", "report", str(file)] if command == "report" else ["predict", job, "--fit", str(file)]
    assert main(arguments) == 2
    assert "fit.npz: " in one_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["fit", "--help"], 0),  # the page of one fit lists the columns that its model declares, and imports it
        (["fit", "fleet", "x.csv", "--map", "duration"], 2),
        (["fit", "fleet", "x.csv", "-o", "none/fit.npz"], 2),
        (["fit", "flet", "x.csv"], 2),
        (["fit", "report", "x.npz", "--plot", "x.gif"], 2),
    ],
)
def test_help_and_wrong_options_import_no_jax(arguments, code):
    done = run_alone(*arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
