"""`prism-jax sweep`: one table on every way out, impossible jobs told, wrong options refused."""

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prism_jax.shell.app import main
from prism_jax.study.report import SweepReport
from tests.support.job_texts import JOB

FEW = ["--samples", "64"]


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.yaml").write_text(JOB)
    return str(tmp_path / "job.yaml")


def test_text_json_csv_and_markdown_tell_the_same(job: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "table.csv"
    arguments = ["sweep", job, "--set", "plan.micro_batch=1,2,5", "--resume", str(tmp_path / "study.npz"), *FEW]
    assert main([*arguments, "--csv", str(file), "--json"]) == 0
    report = SweepReport.from_dict(json.loads(capsys.readouterr().out))
    rows = list(csv.DictReader(file.open()))
    assert [row["plan.micro_batch"] for row in rows] == ["1", "2", "5"]
    assert report.rows[2].figures is None
    assert "micro_batch" in report.rows[2].problem
    for told, written in zip(report.rows[:2], rows, strict=False):
        assert told.figures is not None
        assert float(written["p95_s"]) == told.figures.p95_s
    assert main([*arguments]) == 0
    text = capsys.readouterr().out
    assert "impossible: micro_batch 5" in text
    assert text.count("1.00") >= 1
    assert main([*arguments, "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("| --- | ---")


@pytest.mark.slow
def test_workers_do_not_change_the_table(job: str, tmp_path: Path) -> None:
    files = [tmp_path / "one.csv", tmp_path / "two.csv"]
    for file, workers in zip(files, ("1", "2"), strict=True):
        arguments = ["--set", "plan.micro_batch=1,2", "--set", "plan.tp=1,2", "--set", "plan.dp=8"]
        assert main(["sweep", job, *arguments, "--workers", workers, "--csv", str(file), *FEW, "-q"]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists processes by /proc")
def test_workers_end_with_a_command_that_is_killed(job: str) -> None:
    command = [sys.executable, "-m", "prism_jax", "sweep", job, "--workers", "2", *FEW, "-q"]
    values = ",".join(f"{gb} GB/s" for gb in range(10, 90))
    with subprocess.Popen([*command, "--set", f"cluster.tiers.infiniband.bandwidth={values}"]) as process:
        workers = wait_for(lambda: children(process.pid) if len(children(process.pid)) >= 3 else [])
        process.kill()
    assert wait_for(lambda: [True] if not any(Path(f"/proc/{pid}/stat").exists() for pid in workers) else [])


def children(pid: int) -> list[int]:
    """Processes that a process has started and that run: its workers, and the tracker of their resources."""
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(text) for text in found.read_text().split()] if found.exists() else []


def wait_for(found: Callable[[], list[Any]]) -> list[Any]:
    for _ in range(600):
        if result := found():
            return result
        time.sleep(0.1)
    return []
