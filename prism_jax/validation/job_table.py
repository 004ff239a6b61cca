"""Reads tables of measured jobs, CSV or parquet with one job per row by fields of a job file, and runs from the logs of jobs.

Columns are fields of a job file as `--set` takes them (`model`, `plan.tp`, `cluster.n_devices`), blank where nothing is said, and
`OTHERS`. `ALIASES` are other names of them. A run's log stands for a job file and the typical step
of the log.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import ConfigError, DataError, Mark, PrismError
from ..core.read_file import check_input
from ..core.registry import did_you_mean
from ..core.units import format_s
from ..job.job import Job, open_in_row
from ..job.load_job import SECTIONS, FieldChange, apply_overrides, job_of, load_job, read_job_file, with_fields
from ..recorded.formats.open_trace import open_trace
from ..tables.csv_rows import CsvTable, Seen, boolean_field, number_of, seconds_field
from ..tables.document import Document, short
from ..tables.parquet_text import first_line, read_table_text
from ..trace.step_log import StepLog, without_warm_up

WHAT = "a table of jobs in CSV or parquet"
STEP_TIME, STEP_TIME_SD, FITS, PEAK = "step_time_s", "step_time_sd_s", "fits", "peak_memory_bytes"
ALIASES = {
    "measured_s": STEP_TIME,
    "measured_step_time_s": STEP_TIME,
    "id": "row",
    "date": "software.date",
    "software.framework": "framework",
    "cluster.gpu": "cluster.device",
}
FIELDS = (*SECTIONS, "framework")  # first parts of the names of columns that say what a job is
OTHERS = {
    "job": "job file (relative to the table) or shipped job, which the fields change; without it they are the whole job",
    "set": 'further changes, "plan.tp=4 plan.dp=8"',
    "row": "name of the row",
    "source": "origin of the row",
    "notes": "anything else",
    "version": "of the software, in words of your own: runs of one calibration share it",
    "method": "as version",
    STEP_TIME: "seconds of a step",
    STEP_TIME_SD: "their standard deviation",
    FITS: "whether the job ran (true) or was out of memory (false)",
    PEAK: "most that the allocator of a device reserved",
}
COLUMNS = {"plan.tp, model, ...": "fields of a job file as --set takes them, blank where nothing is said", **OTHERS}
JOBS = (("a table of jobs", f"{__name__}:COLUMNS"),)
SDS = 2.0  # of the range in which nearly all steps lie, on either side


@dataclass(frozen=True)
class MeasuredRun:
    """A job that ran, and its typical seconds per step.

    Attributes:
        measured_s: not a number where the row does not say it.
        measured_range: seconds of a short and of a long step, where their spread is known.
        source: where it is from.
        version: of the software, and the method, in the user's words; empty where the row does not say.
    """

    id: str
    job: Job
    measured_s: float
    measured_range: tuple[float, float] | None = None
    source: str = ""
    version: str = ""


@dataclass(frozen=True)
class MemoryRun:
    """A job that was tried, whether it fitted into memory, and the peak that the allocator of a device reserved, if known."""

    id: str
    job: Job
    fitted: bool
    peak_reserved_bytes: float | None


def is_job_table(path: Path) -> bool:
    """Whether a file begins with the columns of a table of jobs: fields of a job file next to what was measured.

    Raises:
        DataError: the file cannot be read.
    """
    check_input(path)
    columns = {one.strip().strip('"') for one in first_line(path).split(",")}
    has_job = "job" in columns or any(one.split(".")[0] in FIELDS for one in columns)
    times = {STEP_TIME, *(name for name, known in ALIASES.items() if known == STEP_TIME)}
    return has_job and (bool(columns & times) or any(one.startswith("plan.") for one in columns))


def read_job_table(path: str | Path, *, measured: bool = True) -> tuple[MeasuredRun, ...]:
    """The runs of a table, gzipped or not, in its order.

    Args:
        measured: whether seconds are needed; if not, they are not read, and are not a number.

    Raises:
        DataError: the file cannot be read, a column is unknown, a row is malformed or there twice, or its job is wrong; names row
            and field.
    """
    table = _Table(Path(path))
    if measured:
        table.needs(STEP_TIME, "Give the seconds that a step of each job took")
    return tuple(_run(table, row, measured) for row in table.rows)


def read_memory_runs(path: str | Path) -> tuple[MemoryRun, ...]:
    """The jobs of a table of which it says whether they fitted; a peak says that they did.

    Raises:
        DataError: as for `read_job_table`, or no row says it.
    """
    table = _Table(Path(path))
    table.needs(FITS, f"Give true or false, or {PEAK} of those that ran", PEAK)
    runs = [run for row in table.rows if (run := _memory_run(table, row)) is not None]
    if not runs:
        raise DataError(f"{table.name}: no row has {FITS} or {PEAK}, so there is nothing to compare with")
    return tuple(runs)


@dataclass(frozen=True)
class _Row:
    """A line of the table: text by column."""

    where: str
    line: int
    fields: Mapping[str, str]

    def text(self, column: str) -> str:
        return self.fields.get(column, "")


class _Table:
    """The rows of a file, with columns by their first names."""

    def __init__(self, file: Path) -> None:
        self.file, self.name = file, file.name
        table, seen = CsvTable(read_table_text(file, WHAT), file.name), Seen()
        named = {column: ALIASES.get(column, column) for column in table.columns}
        self.columns = tuple(named.values())
        self._check(table.place(1), named)
        self.rows: list[_Row] = []
        for line, fields in table.rows():
            seen.check(fields.values(), table.place(line))
            self.rows.append(_Row(table.place(line), line, {named[column]: text for column, text in fields.items()}))
        if not self.rows:
            raise DataError(f"{self.name}: no rows. Give at least one job.")

    def needs(self, column: str, remedy: str, *instead: str) -> None:
        """Refuses a table without a column.

        Raises:
            DataError: neither it nor one of `instead` is there.
        """
        if not {column, *instead} & set(self.columns):
            raise DataError(f"{self.name}: no column {column}. {remedy}.")

    def _check(self, place: str, named: Mapping[str, str]) -> None:
        first: dict[str, str] = {}
        for column, name in named.items():
            if first.setdefault(name, column) != column:
                raise DataError(f"{place}: the columns {first[name]} and {column} are the same. Keep one.")
            if name and name not in OTHERS and name.split(".")[0] not in FIELDS:
                hint = did_you_mean(name, (*OTHERS, *FIELDS))
                stop = "" if hint.endswith("?") else "."
                raise DataError(
                    f"{place}: unknown column {short(column)}{hint}{stop} Fields are named as in --set: plan.tp."
                )
        if "job" not in self.columns and not {name.split(".")[0] for name in self.columns} & {"model", "cluster"}:
            raise DataError(
                f"{self.name}: no column job. Name a job file in every row, or give fields such as model, plan.tp."
            )

    def job(self, row: _Row) -> Job:
        """The job of a row.

        Raises:
            DataError: it is wrong; names row and field.
        """
        changes = [
            FieldChange(column, text, Mark(row.where))
            for column, text in sorted(row.fields.items(), key=lambda item: item[0].count("."))
            if text and column not in OTHERS and column
        ]
        try:
            base = self._base(row, bool(changes))
            document = apply_overrides(with_fields(base, changes), _words(row.text("set")))
            job = job_of(document)
            own = open_in_row(document.data, job.model, job.cluster, job.plan, job.framework)
            return replace(job, open_plan=own)
        except ConfigError as error:
            raise DataError("; ".join(self._in_row(row, str(mistake)) for mistake in error.mistakes)) from None
        except PrismError as error:
            raise DataError(f"{row.where}: {error}") from None

    def _base(self, row: _Row, has_fields: bool) -> Document:
        """The job file that a row names; an empty document where its fields are all there is."""
        named = row.text("job")
        if named:
            beside = self.file.parent / named
            return read_job_file(beside if os.path.exists(beside) else named)
        if not has_fields:
            raise DataError("no job. Name the job file of this run, or give its fields.")
        return Document(str(self.file.parent / row.where), {})  # so that paths are relative to the table

    def _in_row(self, row: _Row, text: str) -> str:
        """A mistake with the row it is in, if it does not stand in a column of it."""
        text = text.removeprefix(f"{self.file.parent}{os.sep}")
        return text if text.startswith(row.where) else f"{row.where}: {text}"


def _run(table: _Table, row: _Row, measured: bool) -> MeasuredRun:
    job = table.job(row)
    seconds = seconds_field(row.text(STEP_TIME), STEP_TIME, row.where) if measured else None
    sd = seconds_field(row.text(STEP_TIME_SD), STEP_TIME_SD, row.where) if measured else None
    span = (max(0.0, seconds - SDS * sd), seconds + SDS * sd) if seconds and sd else None
    source = row.text("source") or table.name
    version = " ".join(text for column in ("version", "method") if (text := row.text(column)))
    return MeasuredRun(_name(row, job), job, math.nan if seconds is None else seconds, span, source, version)


def _memory_run(table: _Table, row: _Row) -> MemoryRun | None:
    fitted, text = boolean_field(row.text(FITS), FITS, row.where), row.text(PEAK)
    peak = number_of(text) if text else None
    if peak is not None and not 0.0 < peak < math.inf:
        raise DataError(
            f"{row.where}: {PEAK} = {short(text)} is not a positive number. Leave it blank if it is unknown."
        )
    if fitted is None and peak is None:
        return None
    job = table.job(row)
    return MemoryRun(_name(row, job), job, fitted is not False, peak)


def _name(row: _Row, job: Job) -> str:
    return row.text("row") or f"{job.name} line {row.line}"


def _words(text: str) -> Sequence[str]:
    """The changes of a column `set`."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise DataError(
            f"set = {short(text)}: {str(error).lower()}. Write KEY=VALUE, with spaces between several."
        ) from None


class JobLog(NamedTuple):
    """A job (a file, or the name of a shipped job) and a log or trace of it."""

    job: str
    log: str


class LoggedRun(NamedTuple):
    """A measured run, and what people should know of its log."""

    run: MeasuredRun
    notes: tuple[str, ...]


def read_job_logs(
    logs: Sequence[JobLog], skip: int | None = None, stated: Mapping[str, Any] | None = None
) -> tuple[LoggedRun, ...]:
    """The runs: every job with the median step of its log; where entries are means over several steps, the mean of all steps.

    Args:
        logs: jobs and their logs.
        skip: first steps of every log to leave out; None: those that are warm-up.
        stated: what a person says of the logs: keywords of `open_trace`.

    Raises:
        DataError, ConfigError: a job or a log cannot be read; names it.
    """
    return tuple(_job_logs_run(one, index, skip, stated) for index, one in enumerate(logs, start=1))


def typical_step_s(log: StepLog) -> float:
    """Median over single steps; mean over all steps, where entries are means, seconds."""
    if np.median(log.n_steps) > 1:
        return float(np.average(log.step_s, weights=log.n_steps))
    return float(np.median(log.step_s))


def _job_logs_run(one: JobLog, index: int, skip: int | None, stated: Mapping[str, Any] | None) -> LoggedRun:
    try:
        job = load_job(one.job, [])
    except PrismError as error:
        raise DataError(f"--log {one.job}={one.log}: {error}") from None
    found, _ = without_warm_up(open_trace(one.log, **(stated or {})), skip)
    step_s = typical_step_s(found) if isinstance(found, StepLog) else float(np.median(found.step_s))
    name = f"{job.name} log {index}"
    file, n = Path(one.log).name, len(found.step_s)
    entries = "1 entry" if n == 1 else f"{n:,} entries"
    notes = (f"{name}: typical step {format_s(step_s)} of {entries} of {file}", *found.notes)
    return LoggedRun(MeasuredRun(name, job, step_s), (notes[0], *(f"{file}: {note}" for note in notes[1:])))
