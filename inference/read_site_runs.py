"""Measured runs of a site from a CSV: rows of a steps table, or rows that name a job file.

A steps table has the schema of `steps.csv` (columns id, source, gpu, num_gpus, measured_step_time_s; model, tp, pp, ...).
A table with a column `job` holds, per row, a job file (relative to the table, or the name of a shipped job) and
`measured_step_time_s`; `id`, `set` (changes to the job, "plan.tp=4 plan.dp=8") and `framework` may stand beside them.
"""

from __future__ import annotations

import csv
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prism_jax.errors import DataError, PrismError
from prism_jax.io.config import load_job
from prism_jax.io.packed import read_packed_text
from prism_jax.io.steps_table import read_step_rows
from prism_jax.validation import job_of_row

from .site_runs import MeasuredRun
from .step_rows import usable

WHAT = "a table of measured steps in CSV"
JOB, MEASURED = "job", "measured_step_time_s"


@dataclass(frozen=True)
class SiteTable:
    """Runs that can be used, and why the others cannot: id -> reason."""

    runs: tuple[MeasuredRun, ...]
    dropped: Mapping[str, str]


def read_site_runs(path: str | Path) -> SiteTable:
    """The runs of a table.

    Raises:
        DataError: the file cannot be read, a row is malformed, or no row can be used; names row and field.
        ConfigError: what a row says of its job is wrong.
    """
    file = Path(path)
    text = read_packed_text(file, WHAT)
    header = text.lstrip().partition("\n")[0]
    is_table = header[:1] not in ("[", "{")
    columns = next(csv.reader([header]), []) if is_table else []
    found = _jobs(file, text) if JOB in [name.strip() for name in columns] else _rows(file)
    if not found.runs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(found.dropped.items())[:3])
        raise DataError(f"{file.name}: no row can be used ({reasons})")
    return found


def _rows(file: Path) -> SiteTable:
    rows = read_step_rows(file)
    kept = usable(rows)
    used = {id(row) for row in kept}
    lost = [row for row in rows if id(row) not in used]
    return SiteTable(
        tuple(MeasuredRun(row.id, job_of_row(row), row.measured_s or math.nan) for row in kept),
        {row.id: row.unsupported or row.defect or "no measured time" for row in lost},
    )


def _jobs(file: Path, text: str) -> SiteTable:
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    try:
        if MEASURED not in (reader.fieldnames or ()):
            raise DataError(f"{file.name}: no column {MEASURED}. Give the seconds that a step of each job took.")
        return SiteTable(tuple(_job(file, row, reader.line_num) for row in reader), {})
    except csv.Error as error:
        raise DataError(f"{file.name} line {reader.line_num} is not CSV: {error}") from None


def _job(file: Path, row: Mapping[str, str | None], line: int) -> MeasuredRun:
    where = f"{file.name} line {line}"
    named = (row.get(JOB) or "").strip()
    if not named:
        raise DataError(f"{where}: no {JOB}. Name the job file of this run.")
    beside = file.parent / named
    try:
        job = load_job(beside if beside.exists() else named, shlex.split(row.get("set") or ""))
        framework = (row.get("framework") or "").strip()
        job = replace(job, framework=framework) if framework else job
    except (PrismError, ValueError) as error:
        raise DataError(f"{where}: {error}") from None
    return MeasuredRun((row.get("id") or "").strip() or f"{job.name} line {line}", job, _seconds(row, where))


def _seconds(row: Mapping[str, str | None], where: str) -> float:
    text = row.get(MEASURED) or ""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds < math.inf:
        raise DataError(f"{where}: {MEASURED} = {text!r}, but seconds of a step are needed")
    return seconds
