"""Calling `prism-jax trace` in tests, and a table of ops to call it on."""

import csv
import json
from pathlib import Path

import pytest

from prism_jax.shell.app import main
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import draws, record

ROOT = Path(__file__).resolve().parents[3]
LOCAL = str(ROOT / "examples" / "local_cluster")
FEW = ["--draws", "400"]  # one number everywhere, since every shape is compiled


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


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], command: str = "trace") -> str:
    """The one message of a command that must be refused."""
    assert main([command, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err
