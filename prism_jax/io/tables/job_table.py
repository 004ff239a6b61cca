"""Tables of measured jobs: a CSV that names, per row, a job file and the seconds that its step took.

Columns: `job` (a file, relative to the table, or the name of a shipped job) and `measured_step_time_s`; `id`, `set` (changes to
the job, "plan.tp=4 plan.dp=8") and `framework` may stand beside them.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import DataError, PrismError
from ...framework import framework_of
from ...job import Job
from ..job.document import short
from ..job.load_job import load_job
from ..numbers import number_of
from .csv_rows import CsvTable, Seen

JOB, MEASURED = "job", "measured_step_time_s"


@dataclass(frozen=True)
class MeasuredRun:
    """A job that ran, and its typical seconds per step."""

    id: str
    job: Job
    measured_s: float


def is_job_table(text: str) -> bool:
    """Whether a file with this text is a CSV with a column for jobs."""
    if text.lstrip()[:1] in ("[", "{"):
        return False
    try:
        return JOB in CsvTable(text, "").columns
    except DataError:  # whoever reads it as something else will say what is wrong
        return False


def read_job_table(file: Path, text: str, *, measured: bool = True) -> tuple[MeasuredRun, ...]:
    """The runs in a table whose text is at hand.

    Args:
        measured: whether seconds are needed; if not, they are not read, and are not a number.

    Raises:
        DataError: a row is malformed or there twice, or its job is wrong; names row and field.
    """
    table, seen = CsvTable(text, file.name), Seen()
    if measured and MEASURED not in table.columns:
        raise DataError(f"{file.name}: no column {MEASURED}. Give the seconds that a step of each job took.")
    runs = []
    for row in table.rows():
        seen.check(row.fields.values(), table.place(row.line))
        runs.append(_run(file, row.fields, row.line, measured))
    if not runs:
        raise DataError(f"{file.name}: no rows. Give at least one measured step.")
    return tuple(runs)


def _run(file: Path, row: Mapping[str, str], line: int, measured: bool) -> MeasuredRun:
    where = f"{file.name} line {line}"
    named = (row.get(JOB) or "").strip()
    if not named:
        raise DataError(f"{where}: no {JOB}. Name the job file of this run.")
    beside = file.parent / named
    try:
        job = load_job(beside if os.path.exists(beside) else named, [*_changes(row), *_framework(row)])
    except PrismError as error:
        raise DataError(f"{where}: {error}") from None
    name = (row.get("id") or "").strip() or f"{job.name} line {line}"
    return MeasuredRun(name, job, _seconds(row, where) if measured else math.nan)


def _changes(row: Mapping[str, str]) -> list[str]:
    text = row.get("set") or ""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise DataError(
            f"set = {short(text)}: {str(error).lower()}. Write KEY=VALUE, with spaces between several."
        ) from None


def _framework(row: Mapping[str, str]) -> list[str]:
    """The column as a change of the job: what a plan leaves open may follow from it."""
    named = (row.get("framework") or "").strip()
    framework_of(named)
    return [f"framework={named}"] if named else []


def _seconds(row: Mapping[str, str], where: str) -> float:
    text = row.get(MEASURED, "")
    seconds = number_of(text)
    if not 0.0 < seconds < math.inf:
        raise DataError(f"{where}: {MEASURED} = {short(text)}, but seconds of a step are needed")
    return seconds
