"""`prism-jax sweep`: one table on every way out, and the axes of its grid."""

import csv
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.core.kept_work import SAVE_EVERY_S
from prism_jax.core.processes import processes
from prism_jax.shell.app import main
from prism_jax.study.axes import axis_of, grid, sizes_of
from prism_jax.study.report import SweepReport
from tests.support.files.archives import parts
from tests.support.job_texts import JOB

FEW = ["--samples", "64"]


@pytest.fixture
def job(tmp_path: Path) -> str:
    (tmp_path / "job.yaml").write_text(JOB)
    return str(tmp_path / "job.yaml")


def test_mistakes_of_a_job_that_is_none_are_told_apart(tmp_path: Path, capsys) -> None:
    (tmp_path / "bad.yaml").write_text("plan: {tp: 1}\n")
    assert main(["sweep", str(tmp_path / "bad.yaml"), "--set", "plan.tp=1", *FEW]) == 2
    assert re.search(
        r"the first: .*bad\.yaml model: is missing; .*bad\.yaml cluster: is missing;", capsys.readouterr().err
    )


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
    assert main([*arguments, "--details"]) == 0
    text = capsys.readouterr().out
    assert "impossible: micro_batch 5" in text
    assert text.count("1.00") >= 1
    best = next(row for row in report.rows if row.is_best)
    card = report.card()
    assert f"micro_batch {best.settings['plan.micro_batch']}" in card.verdict
    assert card.facts["impossible"] == "1 of 3: micro_batch 5"
    assert f"--set plan.micro_batch={best.settings['plan.micro_batch']}" in card.next_step
    assert report.figure().axes, "drawn from the report alone"
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


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("to", [os.kill, os.killpg], ids=["the command alone", "the whole group"])
def test_an_interrupt_ends_workers_at_once_and_keeps_what_is_done(
    number: int, code: int, to: Callable[[int, int], None], job: str, tmp_path: Path
) -> None:
    values = ",".join(f"{gb} GB/s" for gb in range(10, 200))
    file = tmp_path / "study.npz"
    command = [sys.executable, "-m", "prism_jax", "sweep", job, "--workers", "2", "--samples", "16384", "-q"]
    command += ["--set", f"cluster.tiers.infiniband.bandwidth={values}", "--resume", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        time.sleep(SAVE_EVERY_S)
        wait_for(lambda: [True] if file.exists() else [])
        began = time.monotonic()
        to(process.pid, number)
        _, told = process.communicate()
        assert time.monotonic() - began < 2.0
    assert process.returncode == code
    assert told == ("interrupted\n" if code == 130 else "")
    _, arrays = parts(file)
    assert 0 < (arrays["tasks/jobs"] != "").sum() < 190


def _sleeps(seconds: float) -> None:
    time.sleep(seconds)


def test_processes_end_where_their_caller_is_interrupted() -> None:
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), processes(2) as pool:
        pool.submit(_sleeps, 0.0).result()  # they are there
        pool.submit(_sleeps, 600.0)
        began = time.monotonic()
        raise KeyboardInterrupt
    assert time.monotonic() - began < 20.0  # of 600 s
    assert wait_for(lambda: [] if multiprocessing.active_children() else [True])


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


# --- Grids from options: every combination once, in order; wrong options are refused by name -------------------------


WORDS = st.text("abc0123", min_size=1, max_size=3)
OPTIONS = st.dictionaries(WORDS, st.lists(WORDS, min_size=1, max_size=4, unique=True), max_size=3)


@given(OPTIONS)
def test_a_grid_is_every_combination_once(values: dict[str, list[str]]) -> None:
    axes, points = grid([f"{field}={','.join(own)}" for field, own in values.items()])
    assert {axis.field for axis in axes} == {field for field, own in values.items() if len(own) > 1}
    assert len({point.overrides for point in points}) == len(points) == prod(map(len, values.values()))
    assert all({text.partition("=")[0] for text in point.overrides} == set(values) for point in points)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("plan.tp=1,2,4", ("1", "2", "4")),
        ("a=[1,2],[3]", ("[1,2]", "[3]")),
        ("a={kind: normal, cv: 1},none", ("{kind: normal, cv: 1}", "none")),
        ("a='x,y',z", ("'x,y'", "z")),
    ],
)
def test_commas_inside_brackets_and_quotes_belong_to_a_value(option: str, values: tuple[str, ...]) -> None:
    assert axis_of(option).values == values


@pytest.mark.parametrize(
    ("option", "what"), [("plan.tp", "expected"), ("=1", "expected"), ("a=1,,2", "empty"), ("a=1,1", "twice")]
)
def test_wrong_options_are_refused(option: str, what: str) -> None:
    with pytest.raises(DataError, match=what):
        axis_of(option)


def test_a_field_stands_once_and_a_grid_is_bounded() -> None:
    with pytest.raises(DataError, match="plan.tp is set twice"):
        grid(["plan.tp=1,2", "plan.tp=4"])
    many = ",".join(map(str, range(400)))
    with pytest.raises(DataError, match="more than 100,000 points"):
        grid([f"a={many}", f"b={many}"])


def test_sizes_are_lists_or_doublings() -> None:
    assert sizes_of("8:100") == (8, 16, 32, 64)
    assert sizes_of("512,8") == (8, 512)
    for text in ("", "8:4", "x", "8,8", "0", "-1:8", "8:", "1:99999999999999999999"):
        with pytest.raises(DataError, match="--gpus"):
            sizes_of(text)


def test_models_without_tokens_are_told_in_their_own_unit(capsys) -> None:
    """A step of images has no tokens: neither in a column nor in what unlike batches are compared by."""
    few, image = ("--samples", "64"), "resnet50_64"
    for arguments in (
        [
            "sweep",
            "--details",
            image,
            "--set",
            "plan.global_batch=4096,8192",
            "--set",
            "plan.micro_batch=64",
            "--price",
            "2",
            *few,
        ],
        ["scale", "--details", image, "--gpus", "8,64", "--price", "2", *few],
        ["compare", "--details", image, image, "--price", "2", *few],
    ):
        assert main(arguments) == 0
        told = capsys.readouterr().out
        assert "token" not in told
        assert "samples/s" in told
        assert "money/Msample" in told
