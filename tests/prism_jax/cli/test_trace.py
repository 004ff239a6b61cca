"""`prism-jax trace`: every command on real and synthetic recordings, what it prints and writes, and which options it refuses."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from prism_jax.cli.app import main
from tests.broken_traces import MEGATRON, mllog_line
from tests.trace_oracle import PipelineJob
from tests.traces import draws, record

ROOT = Path(__file__).resolve().parents[3]
LOCAL = str(ROOT / "examples" / "local_cluster")
HEAVY = {"jax", "jaxlib", "equinox", "numpyro", "optax", "pandas", "matplotlib", "scipy.stats", "inference"}
FEW = ["--draws", "400"]  # one number everywhere, since every shape is compiled
QUANTILES = {"p50", "p95", "p99"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Eight steps of a job with dp 3, pp 2 and 4 micro-batches, as a plain table; ranks 10 to 12 and 20 to 22."""
    return str(written(tmp_path_factory.mktemp("table") / "ops.csv", PipelineJob(2, 3, 4), 8))


def written(path: Path, job: PipelineJob, n_step: int) -> Path:
    fields = ("step", "dp", "pp", "op_type", "micro_batch", "chunk", "start_s", "duration_s")
    with path.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow([*fields, "rank"])
        for row in record(job, n_step, *draws(0, spread=0.1)).rows:
            rows.writerow([*(getattr(row, name) for name in fields), 10 * (row.pp + 1) + row.dp])
    return path


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints that must succeed and stay silent on stderr but for the files it wrote."""
    code = main(["trace", *arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert all(line.startswith("wrote ") for line in captured.err.splitlines())
    return captured.out


def run_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(run([*arguments, "--json"], capsys), parse_constant=lambda name: pytest.fail(name))


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one message of a command that must be refused."""
    assert main(["trace", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err


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
    assert {
        "S",
        "M_W",
        "M_S",
        "by_op_type",
        "by_rank",
        "by_stage",
        "by_dp",
        "worst_ranks",
        "criticality",
    } <= found.keys()
    assert set(found["by_rank"]) == {"10", "11", "12", "20", "21", "22"}
    assert set(found["by_stage"]) == {"0", "1"}
    assert {"forward-compute", "backward-compute", "forward-pp-comm"} <= found["by_op_type"].keys()
    names = list(found["changes"])
    assert names[:3] == ["as recorded", "rank 21 replaced by a median worker", "rank 10 replaced by a median worker"]
    assert "workers in other places" in names
    assert names[-1] == "one layer moved off the last stage"
    for times in found["changes"].values():
        assert set(times) == QUANTILES
    base, slow = (
        found["changes"]["as recorded"],
        next(v for k, v in found["changes"].items() if k.startswith("rank 22")),
    )
    assert slow["p50"] > 1.3 * base["p50"]
    assert found["inputs"]["swap"] == ["10:20"]


# --- Published figures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slowdown", "m_w", "m_s"),
    [("SE", 1.53736, 0.02506, 0.6877), pytest.param("ST", 1.17870, 0.0314, 1.2194, marks=SLOW)],
)
def test_slowdowns_of_the_published_traces(
    name: str, slowdown: float, m_w: float, m_s: float, shared_data, capsys
) -> None:
    found = run_json(["what-if", str(shared_data / "traces" / f"trace-{name}.parquet"), *FEW], capsys)
    assert found["S"] == pytest.approx(slowdown, abs=1e-4)
    assert found["M_W"] == pytest.approx(m_w, abs=1e-4)
    assert found["M_S"] == pytest.approx(m_s, abs=1e-4)
    assert found["job"]["name"] == name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SE", "ST"])
def test_published_traces_are_predicted(name: str, shared_data: Path, capsys) -> None:
    file = str(shared_data / "traces" / f"trace-{name}.parquet")
    found = run_json(["predict", file], capsys)
    assert abs(found["p95_error"]) < 0.1
    assert found["n_train"] + found["n_test"] == found["n_steps"]
    assert found["replay"]["median_abs_error"] < 0.02


@pytest.mark.slow
def test_8_of_32_recorded_replicas_tell_the_whole_job(shared_data: Path, capsys) -> None:
    found = run_json(["predict", str(shared_data / "traces" / "trace-SE.parquet"), "--fit-replicas", "8"], capsys)
    assert abs(found["p95_error"]) < 0.05
    assert found["naive"]["slowest of 8 replicas"]["p95_error"] < -0.05


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


@pytest.mark.parametrize("file", ["TABLE", LOCAL])
@pytest.mark.parametrize("name", ["steps.json", "steps.json.gz"])
def test_timelines_are_written_whole_and_viewable(file: str, name: str, table: str, tmp_path: Path, capsys) -> None:
    run(["export", table if file == "TABLE" else file, "--perfetto", str(tmp_path / name)], capsys)
    data = (tmp_path / name).read_bytes()
    events = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)["traceEvents"]
    workers = {event["pid"] for event in events if event["name"] == "process_name"}
    assert workers == ({10, 11, 12, 20, 21, 22} if file == "TABLE" else {0, 1, 2, 3})
    by_lane: dict[tuple[int, int], list[dict]] = {}
    for event in events:
        if event["ph"] == "X":
            by_lane.setdefault((event["pid"], event["tid"]), []).append(event)
    assert {pid for pid, _ in by_lane} == workers
    for lane in by_lane.values():
        assert all(before["ts"] + before["dur"] <= after["ts"] + 1e-6 for before, after in pairwise(lane))
    assert [found.name for found in tmp_path.iterdir()] == [name]


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


# --- Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "--fit-replicas", "4"], ["--fit-replicas 4", "3 dp replicas were recorded", "Choose 1 to 3"]),
        (["predict", "--train-fraction", "0.1"], ["--train-fraction 0.1", "1 of 8", "at least 2", "1 for no check"]),
        (["predict", "--train-fraction", "0.9"], ["--train-fraction 0.9", "7 of 8", "at least 2"]),
        (["what-if", "--replace-rank", "99"], ["--replace-rank", "rank 99 was not recorded", "10, 11, 12, 20"]),
        (["what-if", "--swap", "10:99"], ["--swap", "rank 99 was not recorded"]),
        (["what-if", "--swap", "10"], ["--swap", "'10' is not two ranks, such as 3:17"]),
        (["what-if", "--swap", "10-20"], ["--swap", "not two ranks"]),
        (["what-if", "--swap", ":"], ["--swap", "not two ranks"]),
        (["what-if", "--swap", "1:2:3"], ["--swap", "not two ranks"]),
        (["what-if", "--swap", "9" * 5000], ["--swap", "not two ranks"]),
        (["what-if", "--swap", "10:10"], ["--swap", "change places"]),
        (["what-if", "--swap", "10:11", "--swap", "11:12"], ["--swap", "a rank can change places once"]),
        (["what-if", "--slow-rank", "10"], ["--slow-rank", "such as 3:1.2"]),
        (["what-if", "--slow-rank", "10:nan"], ["--slow-rank", "such as 3:1.2"]),
        (["what-if", "--slow-rank", "10:-1"], ["--slow-rank", "such as 3:1.2"]),
        (["what-if", "--slow-rank", "99:1.1"], ["--slow-rank", "rank 99 was not recorded"]),
        (["export", "--perfetto", "x.json", "--step", "99"], ["--step", "99 was not recorded", "nearest one is 17"]),
        (["export", "--perfetto", "x.json", "--step", "9" * 40], ["--step", "was not recorded"]),
        (["export", "--perfetto", "x.txt"], ["--perfetto", "must end in .json or .json.gz"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_wrong_options_are_named_with_the_remedy(
    arguments: list[str], words: list[str], table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """And before the work begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prism_jax.trace.recorded_job.observed_waits", lambda *_: pytest.fail("work has begun"))
    message = refused([arguments[0], table, *arguments[1:]], capsys)
    for word in words:
        assert word in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "FILE", "--splits", "0"],
        ["predict", "FILE", "--splits", "1001"],
        ["predict", "FILE", "--train-fraction", "2"],
        ["predict", "FILE", "--draws", "1"],
        ["predict", "FILE", "--seed", "-1"],
        ["predict", "FILE", "--replicas", "none"],
        ["export", "FILE"],
        ["predict"],
        ["frobnicate", "FILE"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_on_stderr(arguments: list[str], table: str, capsys) -> None:
    assert main(["trace", *(table if word == "FILE" else word for word in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: prism-jax trace" in captured.err


PICTURES = [
    ("absent/x.png", "there is no folder"),
    ("folder.png", "a folder stands there"),
    ("x.gif", "--plot: .*x.gif: the name must end in .png, .pdf or .svg"),
    ("x", "must end in .png"),
]


@pytest.mark.parametrize(
    ("command", "option", "target", "message"),
    [
        *((command, "--plot", *picture) for command in ("predict", "what-if") for picture in PICTURES),
        ("export", "--perfetto", "absent/x.json", "there is no folder"),
        ("export", "--perfetto", "x.json.zip", "must end in .json"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_the_work(
    command: str, option: str, target: str, message: str, table: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("prism_jax.io.traces.open_trace.open_trace", lambda *_: pytest.fail("work has begun"))
    (tmp_path / "folder.png").mkdir()
    assert re.search(message, refused([command, table, option, str(tmp_path / target)], capsys))


def test_timelines_do_not_land_on_or_among_their_inputs(tmp_path: Path, capsys) -> None:
    for file in Path(LOCAL).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = sorted(tmp_path.iterdir())
    rank0 = str(tmp_path / "rank0.json.gz")
    for file, target in ((str(tmp_path), str(tmp_path / "out.json")), (str(tmp_path / "rank?.json.gz"), rank0)):
        assert "--perfetto: " in refused(["export", file, "--perfetto", target], capsys)
    assert sorted(tmp_path.iterdir()) == before


def test_jobs_of_one_stage_have_no_layer_to_move(tmp_path: Path, capsys) -> None:
    path = str(written(tmp_path / "ops.csv", PipelineJob(1, 2, 2), 4))
    assert "--layers-per-stage" in refused(["what-if", path, "--layers-per-stage", "3"], capsys)


def test_groups_with_another_name_in_every_step_are_pointed_out(tmp_path: Path, capsys) -> None:
    """Of three dp ranks two were recorded, and of rank 2 a step differs."""
    path = tmp_path / "ops.csv"
    rows = [f"{step},{dp},meet,{step},1,g{step}" for step in range(3) for dp in (0, 2)]
    path.write_text("\n".join(["step,dp,op_type,start_s,duration_s,group", *rows]))
    message = refused(["info", str(path)], capsys)
    assert "alone has meet 0 of stage 0, whose group must be the same in every step" in message
    path.write_text(
        "\n".join(["step,dp,op_type,start_s,duration_s,group", *rows])
        .replace(",2,meet,1,", ",2,greet,1,")
        .replace("g1", "g0")
        .replace("g2", "g0")
    )
    notes = run_json(["info", str(path)], capsys)["notes"]
    assert any("in step 1 dp rank 2 " in note for note in notes)
    assert any("2 of 3 data-parallel ranks were recorded" in note for note in notes)


def test_two_workers_of_one_rank_are_refused(tmp_path: Path, capsys) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("step,dp,rank,op_type,start_s,duration_s\n1,0,5,a,0,1\n1,1,5,a,0,1\n")
    assert "rank 5 stands at two workers" in refused(["info", str(path)], capsys)


# --- Logs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def megatron(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    times_ms = 500 + 20 * np.random.default_rng(0).standard_normal(40)
    path.write_text("".join(MEGATRON.replace("10/", f"{i}/").format(f"{t:.1f}") for i, t in enumerate(times_ms, 1)))
    return str(path)


@pytest.fixture
def mlperf(tmp_path: Path) -> str:
    path = tmp_path / "mlperf.log"
    seconds = 0.5 + 0.02 * np.random.default_rng(0).standard_normal(40)
    lines = [
        mllog_line("tracked_stats", 1000 * i, {"train_step_time": s}, step_num=i) for i, s in enumerate(seconds, 1)
    ]
    path.write_text("".join(lines))
    return str(path)


@pytest.mark.parametrize("kind", ["megatron", "mlperf"])
def test_logs_are_described_and_predicted(kind: str, request: pytest.FixtureRequest, tmp_path: Path, capsys) -> None:
    """The prediction is a reweighting of the log's own step times."""
    file = request.getfixturevalue(kind)
    info = run_json(["info", file], capsys)
    assert (info["kind"], info["n_steps"]) == ("step log", 40)
    assert info["step_s"]["p50"] == pytest.approx(0.5, abs=0.02)
    found = run_json(["predict", file, "--plot", str(tmp_path / "x.png")], capsys)
    assert (found["n_train"], found["n_test"]) == (20, 20)
    assert found["steps_s"]["p50"] == pytest.approx(info["step_s"]["p50"], abs=0.01)
    assert found["steps_s"]["p95"] == pytest.approx(info["step_s"]["p95"], abs=0.02)
    assert {"evidence", "replay", "job"}.isdisjoint(found)
    assert set(found["naive"]) == {"recorded steps"}
    assert (tmp_path / "x.png").exists()
    assert "step times of a log" in run(["predict", file], capsys)


@pytest.mark.parametrize("options", [["--replicas", "4"], ["--micro-batches", "4"], ["--fit-replicas", "1"]])
def test_logs_have_no_replicas_and_no_micro_batches(options: list[str], megatron: str, capsys) -> None:
    message = refused(["predict", megatron, *options], capsys)
    assert "no replicas and no micro-batches" in message
    assert options[0] in message


@pytest.mark.parametrize("command", [["replay"], ["what-if"], ["export", "--perfetto", "x.json"]])
def test_logs_have_no_ops(command: list[str], megatron: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    message = refused([command[0], megatron, *command[1:]], capsys)
    assert "train.log: a log of step times without ops. `trace info` and `trace predict` take it" in message
    assert not (tmp_path / "x.json").exists()


# --- Processes -------------------------------------------------------------------------------------------------------


def process(arguments: list[str], **options) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, *arguments], env=env, text=True, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["predict", "--help"], ["info", "TABLE"], ["info", "TABLE", "--json"], ["predict", "absent.csv"]],
    ids=" ".join,
)
def test_quick_commands_import_nothing_heavy(arguments: list[str], table: str) -> None:
    code = (
        "import sys; from prism_jax.cli.app import main; code = main(['trace', *sys.argv[1:]]); "
        "print(code, *sys.modules, file=sys.stderr)"
    )
    words = [table if word == "TABLE" else word for word in arguments]
    with process(["-c", code, *words], stdout=subprocess.DEVNULL) as found:
        assert found.stderr is not None
        exit_code, *modules = found.stderr.read().splitlines()[-1].split()
    assert exit_code == ("2" if "absent.csv" in arguments else "0")
    assert set(modules) & HEAVY == set()


@pytest.mark.skipif(os.name != "posix", reason="a POSIX pipe")
def test_pictures_are_written_though_the_reader_has_left(megatron: str, tmp_path: Path) -> None:
    picture = str(tmp_path / "x.png")
    arguments = ["-m", "prism_jax", "trace", "predict", megatron, "--plot", picture]
    with process(arguments, stdout=subprocess.PIPE) as found:
        assert found.stdout is not None
        assert found.stderr is not None
        found.stdout.close()
        errors = found.stderr.read()
    assert (found.returncode, errors) == (1, f"wrote {picture}\n")
    assert Path(picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.skipif(signal.getsignal(signal.SIGINT) == signal.SIG_IGN, reason="a shell's background jobs ignore SIGINT")
def test_ctrl_c_ends_many_splits_at_once(table: str, tmp_path: Path) -> None:
    picture = tmp_path / "x.png"
    arguments = ["-m", "prism_jax", "trace", "predict", table, "--splits", "1000", "--plot", str(picture)]
    with process(arguments, stdout=subprocess.PIPE) as found:
        time.sleep(15.0)
        found.send_signal(signal.SIGINT)
        out, errors = found.communicate(timeout=30)
    assert (found.returncode, out, errors) == (130, "", "interrupted\n")
    assert not picture.exists()


def test_ops_of_one_stream_that_overlap_are_warned_of(tmp_path: Path, capsys) -> None:
    path = tmp_path / "ops.csv"
    rows = [f"{step},0,compute,{3 * step + start},1" for step in range(3) for start in (0.0, 0.5)]
    path.write_text("\n".join(["step,dp,op_type,start_s,duration_s", *rows]))
    assert main(["trace", "predict", str(path)]) == 0
    assert "33% off the recorded steps" in capsys.readouterr().out
