"""`prism-jax trace` on logs of training software, and as a process that is interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from prism_jax.shell.app import main
from tests.prism_jax.recorded.calls import ROOT, refused, run, run_json
from tests.support.broken_traces import MEGATRON, mllog_line
from tests.support.intervals import estimates
from tests.support.training_logs import LOGS

HEAVY = {"jax", "jaxlib", "equinox", "numpyro", "optax", "pandas", "matplotlib", "scipy.stats", "inference"}


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


def warm_log(folder: Path) -> str:
    """A MaxText log whose first three steps are compilation."""
    seconds = 9.8 * np.exp(0.03 * np.random.default_rng(0).standard_normal(60))
    seconds[:3] = [270.0, 3.0, 15.1]
    path = folder / "train.log"
    path.write_text(LOGS["MaxText"].write(seconds.tolist()))
    return str(path)


def test_warm_up_is_left_out_unless_it_is_asked_for(tmp_path: Path, capsys) -> None:
    file = warm_log(tmp_path)
    found = run_json(["info", file], capsys)
    assert (found["n_steps"], found["n_left_out"], found["first_step"]) == (57, 3, 3)
    assert any("left out as warm-up (steps 0, 1, 2: 27." in note for note in found["notes"])
    assert run_json(["info", file, "--skip", "0"], capsys)["n_steps"] == 60
    assert run_json(["info", file, "--skip", "10"], capsys)["first_step"] == 10
    assert "--skip 60 leaves none of 60 recorded steps" in refused(["info", file, "--skip", "60"], capsys)


@pytest.mark.parametrize("skip", [[], ["--skip", "0"]])
def test_estimates_lie_in_their_intervals_with_warm_up_and_without(skip: list[str], tmp_path: Path, capsys) -> None:
    found = list(estimates(run_json(["predict", warm_log(tmp_path), *skip], capsys)))
    assert len(found) >= 4
    assert [one for one in found if not one.is_inside] == []


def test_a_unit_is_asked_for_and_taken(tmp_path: Path, capsys) -> None:
    path = tmp_path / "steps.csv"
    path.write_text("step,step_time\n" + "".join(f"{n},{1500 + n % 7}\n" for n in range(40)))
    assert "nothing says the unit. State it with --unit s or --unit ms" in refused(["predict", str(path)], capsys)
    assert run_json(["predict", str(path), "--unit", "ms"], capsys)["steps_s"]["p50"] == pytest.approx(1.503, abs=0.01)


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


def test_quick_commands_import_nothing_heavy(table: str) -> None:
    code = (
        "import json, sys; from prism_jax.shell.app import main\n"
        "for arguments in json.loads(sys.argv[1]): print(main(['trace', *arguments]), *sys.modules, file=sys.stderr)"
    )
    quick = [["--help"], ["predict", "--help"], ["info", table], ["info", table, "--json"], ["predict", "absent.csv"]]
    with process(["-c", code, json.dumps(quick)], stdout=subprocess.DEVNULL) as found:
        assert found.stderr is not None
        told = [line.split() for line in found.stderr.read().splitlines() if " sys " in line]
    assert [exit_code for exit_code, *_ in told] == ["0", "0", "0", "0", "2"]
    for arguments, (_, *modules) in zip(quick, told, strict=True):
        assert set(modules) & HEAVY == set(), arguments


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
    assert main(["trace", "predict", str(path), "--details"]) == 0
    assert "misses the recorded steps by 33%" in capsys.readouterr().out
