"""Tables of measured jobs: what a spreadsheet writes is read, and what would count twice or cannot be is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from prism_jax.errors import DataError
from prism_jax.io.job.examples import example_files
from prism_jax.io.tables.job_table import is_job_table, read_job_table

HEADER = "job,set,measured_step_time_s"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table beside a job file, still to be written."""
    shutil.copy(next(iter(example_files().values())), tmp_path / "job.yaml")
    return tmp_path / "runs.csv"


def test_runs_are_read_whatever_the_line_ends_and_the_spaces(file: Path) -> None:
    text = f'{HEADER}\rjob.yaml, ,2.5\r\n\r\n,,\n job.yaml ,"plan.seq_len=1024", 1e0\n'
    first, second = read_job_table(file, text)
    assert (first.measured_s, second.measured_s) == (2.5, 1.0)
    assert second.job.plan.seq_len == 1024
    assert second.id.endswith("line 5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\njob.yaml,,1.5\njob.yaml,,2\njob.yaml,,1.5\n", "line 4: the same row as runs.csv line 2. Keep one"),
        ("job,measured_step_time_s,job\n", "line 1: the column 'job' is there twice"),
        (f"{HEADER}\njob.yaml,,1_0\n", "line 2: measured_step_time_s = '1_0'"),
        (f"{HEADER}\njob.yaml,,١\n", "line 2: measured_step_time_s = '١'"),
        (f"{HEADER}\n{'x' * 300},,1\n", "line 2: x+: not a usable file name: .*too long"),
        (f"{HEADER}\njob.yaml,1\n", "line 2: the number of fields differs"),
    ],
)
def test_mistakes_name_the_line(file: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=f"runs.csv {message}"):
        read_job_table(file, text)


def test_equal_times_of_runs_with_names_are_two_runs(file: Path) -> None:
    assert len(read_job_table(file, f"id,{HEADER}\na,job.yaml,,1\nb,job.yaml,,1\n")) == 2


@pytest.mark.parametrize(
    ("text", "is_one"), [("id, job \n", True), ('\n"job",x\n', True), ("jobs\n", False), ("[1]", False)]
)
def test_a_column_of_jobs_tells_the_table(text: str, is_one: bool) -> None:
    assert is_job_table(text) is is_one
