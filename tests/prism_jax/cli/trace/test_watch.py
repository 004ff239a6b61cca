"""`prism-jax watch`: what it prints, and what it refuses in one line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from prism_jax.shell.app import main
from tests.support.broken_traces import BROKEN, Broken


@pytest.fixture
def slow_log(tmp_path: Path) -> Path:
    step_s = 2.0 * np.exp(0.004 * np.random.default_rng(0).standard_normal(120))
    step_s[80:] *= 1.15
    file = tmp_path / "train.csv"
    rows = "".join(f"{number},{seconds:.6f}\n" for number, seconds in enumerate(step_s, 1))
    file.write_text(f"step,step_time_s\n{rows}")
    return file


def test_it_prints_onset_size_and_verdict(slow_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(slow_log)]) == 0
    printed = capsys.readouterr().out
    assert "slow from step 81 on: +15." in printed or "slow from step 81 on: +14." in printed
    assert "WAIT" in printed
    assert main(["watch", str(slow_log), "--restart-cost", "5s"]) == 0
    assert "ACT: since step 9" in capsys.readouterr().out


def test_json_and_picture(slow_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = slow_log.with_suffix(".png")
    assert main(["watch", str(slow_log), "--json", "--plot", str(picture)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "prism-jax/watch/1"
    assert report["phases"][0]["onset_step"] == 81
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_is_left_is_told_on_request(slow_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(slow_log), "--remaining", "900"]) == 0
    assert "left: 900 steps take p50 3" in capsys.readouterr().out  # minutes: 900 steps of 2 to 2.3 s
    assert main(["watch", str(slow_log), "--json"]) == 0
    assert "time_left" not in json.loads(capsys.readouterr().out)
    assert main(["watch", str(slow_log), "--remaining", "900", "--json"]) == 0
    left = json.loads(capsys.readouterr().out)["time_left"]
    assert left["p5_s"] < left["p50_s"] < left["p95_s"]
    assert left["p95_s"] - left["p5_s"] > 5.0 * (left["independent_p95_s"] - left["independent_p5_s"])
    assert left["variance_shares"]["change"] > 0.5  # the log holds a slow phase that lasts


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["watch", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err


@pytest.mark.parametrize("kind", BROKEN[::9], ids=lambda kind: kind.name)
def test_broken_logs_and_traces_are_refused_in_one_line(
    tmp_path: Path, kind: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(kind.match, refused([str(kind.make(tmp_path))], capsys))
