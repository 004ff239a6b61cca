"""`prism-jax trace`: every command on real and synthetic recordings, what it prints and writes."""

import json
from pathlib import Path

import numpy as np
import pytest

from prism_jax.shell.app import main
from tests.prism_jax.recorded.calls import FEW, LOCAL, ROOT, run, run_json, written
from tests.support.trace_oracle import PipelineJob

QUANTILES = {"p50", "p95", "p99"}


# --- Every command ---------------------------------------------------------------------------------------------------


GLOO = str(ROOT / "tests" / "data" / "kineto_gloo")
SLOW = pytest.mark.slow  # what-if compiles most


@pytest.mark.parametrize(
    ("command", "file"),
    [(command, file) for command in ("info", "replay") for file in ("local_cluster", GLOO, "TABLE")]
    + [
        ("what-if", "TABLE"),
        pytest.param("what-if", "local_cluster", marks=SLOW),
        pytest.param("what-if", GLOO, marks=SLOW),
    ],
)
def test_commands_print_text_and_json(command: str, file: str, table: str, capsys) -> None:
    arguments = [command, table if file == "TABLE" else file, *(FEW if command == "what-if" else [])]
    text = run(arguments, capsys)
    assert text.count("\n") > 3
    found = run_json(arguments, capsys)
    assert found["kind"] == "trace"
    assert {"job", "source", "n_steps", "first_step", "last_step", "step_s", "op_types", "notes"} <= found.keys()
    assert str(found["job"]["name"]) in text.splitlines()[0]
    if command == "replay":
        assert found["replay"]["with_host_gaps"]["median_abs_error"] < 1e-4
        assert len(found["recorded_s"]) == len(found["steps"]) == found["n_steps"]
    if command != "info":
        assert {"versions", "git_revision", "inputs", "seed"} <= found.keys()


@pytest.mark.parametrize("file", ["TABLE", pytest.param(LOCAL, marks=pytest.mark.slow)])
def test_predict_keeps_its_promises(file: str, table: str, capsys) -> None:
    file = table if file == "TABLE" else file
    found = run_json(["predict", file, *FEW, "--seed", "3"], capsys)
    assert abs(found["n_train"] - found["n_test"]) <= 1
    assert found["n_train"] + found["n_test"] == found["n_steps"]
    assert found.keys() >= {"p50_error", "p95_covered"}
    assert set(found["measured_s"]) == {"p50", "p95"}
    assert set(found["predicted_s"]) == set(found["long_run_s"]) == QUANTILES
    assert found["steps_s"].keys() >= QUANTILES
    assert found["p95_error"] == pytest.approx(found["predicted_s"]["p95"] / found["measured_s"]["p95"] - 1)
    assert found["replay"]["median_abs_error"] < 0.1
    assert 0 < found["ks_distance"] < 1
    assert 0 < found["ks_floor"] < 1
    assert found["p95_interval_s"][0] < found["p95_interval_s"][1]
    assert set(found["naive"]) == {"recorded steps", "independent pools"}
    assert found["seed"] == 3
    expected = {"file": file, "draws": 400, "splits": 1, "train_fraction": 0.5, "fit_replicas": None}
    assert expected.items() <= found["inputs"].items()
    assert "splits" not in found


def test_several_splits_are_averaged_and_the_first_is_that_of_a_single_split(table: str, capsys) -> None:
    several = run_json(["predict", table, *FEW, "--splits", "3"], capsys)
    single = run_json(["predict", table, *FEW], capsys)
    assert len(several["splits"]) == 3
    for name in ("p95_error", "ks_distance", "ks_floor"):
        assert several[name] == pytest.approx(np.mean([split[name] for split in several["splits"]]))
    for name in ("p95_error", "measured_s", "predicted_s", "naive"):
        assert several["splits"][0][name] == single[name]
    assert several["steps_s"] == single["steps_s"]


@pytest.mark.parametrize("command", [["predict"], ["what-if"]], ids=lambda command: command[0])
def test_same_seed_same_output_other_seed_another(table: str, command: list[str], capsys) -> None:
    arguments = [*command, table, *FEW]
    once, again = (run([*arguments, "--seed", "7"], capsys) for _ in range(2))
    assert once == again
    assert run([*arguments, "--seed", "8"], capsys) != once


def test_fit_on_some_replicas(table: str, capsys) -> None:
    found = run_json(["predict", table, *FEW, "--fit-replicas", "2"], capsys)
    assert (found["n_train"], found["n_test"], found["fit_replicas"]) == (8, 8, 2)
    assert set(found["naive"]) == {"slowest of 2 replicas", "independent pools"}
    text = run(["predict", table, *FEW, "--fit-replicas", "2"], capsys)
    assert "check: fitted on 8 steps of 2 replicas, 8 steps predicted" in text


def test_no_check_on_demand_and_where_steps_are_too_few(table: str, tmp_path: Path, capsys) -> None:
    assert "check:" not in run(["predict", table, *FEW, "--train-fraction", "1"], capsys)
    short = str(written(tmp_path / "ops.csv", PipelineJob(1, 1, 2), 3))
    found = run_json(["predict", short, *FEW], capsys)
    assert found["n_test"] == 0
    assert "3 recorded steps are too few to hold some out" in found["notes"][-1]
    assert np.isfinite(found["steps_s"]["p99"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "job", [PipelineJob(1, 1, 1), PipelineJob(2, 1, 1), PipelineJob(1, 3, 2), PipelineJob(2, 2, 4, 2)]
)
@pytest.mark.parametrize("n_step", [1, 2, 5])
def test_jobs_of_any_shape_go_through_all_commands(job: PipelineJob, n_step: int, tmp_path: Path, capsys) -> None:
    """One rank, one stage, one micro-batch, several chunks; one step and few."""
    file = str(written(tmp_path / "ops.csv", job, n_step))
    for command in ("info", "replay", "predict", "what-if"):
        picture = ["--plot", str(tmp_path / "x.png")] if command in ("predict", "what-if") else []
        run_json([command, file, *picture], capsys)
        run([command, file], capsys)
    run(["export", file, "--perfetto", str(tmp_path / "x.json")], capsys)


def test_more_replicas_and_more_micro_batches_take_longer(table: str, capsys) -> None:
    def median_s(n_replica: int | None = None, n_micro_batch: int | None = None) -> float:
        options = ["--replicas", str(n_replica)] if n_replica else []
        options += ["--micro-batches", str(n_micro_batch)] if n_micro_batch else []
        found = run_json(["predict", table, *FEW, "--train-fraction", "1", *options], capsys)
        assert found["asked"] == {"n_replica": n_replica, "n_micro_batch": n_micro_batch}
        return found["steps_s"]["p50"]

    as_recorded = median_s()
    assert median_s(n_replica=3) == median_s(n_micro_batch=4) == as_recorded
    assert median_s(24, 8) > as_recorded + 4 * 0.3  # four more micro-batches of 0.3 s
    assert median_s(n_micro_batch=2) < as_recorded - 2 * 0.28


def test_what_if_tells_who_is_slow_and_what_changes_bring(table: str, capsys) -> None:
    options = ["--replace-rank", "21", "--replace-rank", "10", "--swap", "10:20", "--slow-rank", "22:2"]
    found = run_json(["what-if", table, *FEW, *options, "--layers-per-stage", "4"], capsys)
    assert found.keys() >= {"S", "M_W", "M_S", "by_dp", "worst_ranks", "criticality"}
    assert set(found["by_rank"]) == {"10", "11", "12", "20", "21", "22"}
    assert set(found["by_stage"]) == {"0", "1"}
    assert {"forward-compute", "backward-compute", "forward-pp-comm"} <= found["by_op_type"].keys()
    names = list(found["changes"])
    assert names[:3] == ["as recorded", "rank 21 replaced by a median worker", "rank 10 replaced by a median worker"]
    assert "workers in other places" in names
    assert names[-1] == "one layer moved off the last stage"
    for times in found["changes"].values():
        assert set(times) == QUANTILES
    (slow,) = (times for name, times in found["changes"].items() if name.startswith("rank 22"))
    assert slow["p50"] > 1.3 * found["changes"]["as recorded"]["p50"]
    assert found["inputs"]["swap"] == ["10:20"]


# --- Published figures -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SE", "ST"])
def test_published_traces_are_predicted(name: str, shared_data: Path, capsys) -> None:
    file = str(shared_data / "traces" / f"trace-{name}.parquet")
    found = run_json(["predict", file], capsys)
    assert abs(found["p95_error"]) < 0.1
    assert found["n_train"] + found["n_test"] == found["n_steps"]
    assert found["replay"]["median_abs_error"] < 0.02


# --- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
@pytest.mark.parametrize("command", ["predict", "what-if"])
def test_pictures_are_written_whole_beside_the_result(
    command: str, ending: str, table: str, tmp_path: Path, capsys
) -> None:
    folder = tmp_path / "with spaces ü"
    folder.mkdir()
    picture = folder / f"a picture.{ending}"
    assert main(["trace", command, table, *FEW, "--plot", str(picture)]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"wrote {picture}\n"
    assert captured.out != ""
    assert picture.read_bytes().startswith({"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[ending])
    assert [file.name for file in folder.iterdir()] == [picture.name]


def test_chosen_steps_are_written(table: str, tmp_path: Path, capsys) -> None:
    target = str(tmp_path / "steps.json")
    assert main(["trace", "export", table, "--perfetto", target, "--step", "12", "--step", "10", "--step", "12"]) == 0
    assert capsys.readouterr().err == f"wrote {target}: step 12, 10\n"
    other = json.loads(Path(target).read_text())["otherData"]
    assert list(other) == ["job", "step 12", "step 10"]


def test_inputs_stay_as_they_were(table: str, capsys) -> None:
    before = {file: file.read_bytes() for file in [Path(table), *Path(LOCAL).iterdir()]}
    run(["predict", table, *FEW], capsys)
    run(["replay", LOCAL], capsys)
    assert {file: file.read_bytes() for file in before} == before
    assert len(list(Path(table).parent.iterdir())) == 1
