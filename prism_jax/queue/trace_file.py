"""Traces of a cluster's queue: one row per job, CSV (gzip too) or parquet.

| column | what |
|---|---|
| submit_s (submit_time, Submit, creation_time, ...) | seconds since any origin, or a time of day: "2020-04-01 00:00:10" |
| gpus (n_gpus, num_gpus, gpu_num, AllocGPUS, ...) | that the job needs; "gres/gpu=8" of Slurm |
| duration_s (run_s, runtime_s, duration, Elapsed, ...) | seconds that it ran, or "1-02:03:04"; else start and end |
| deadline_s | optional, on the clock of submit_s |
| vc, cluster, partition, queue or group | optional: the part of the cluster that it belongs to |
| job (JobID) | optional: Slurm's steps of a job (101.batch, 101.0) are part of the job and passed over |

Such are the tables of Helios, Philly, Acme, PBS, Slurm's sacct (with `|` too); `--map COLUMN=FIELD` names columns that nobody
knows. Other columns are passed over, and the order of rows says nothing: jobs of one second are ordered by size and duration.
Jobs without a GPU are passed over; rows that cannot be used are left out, counted and named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.read_file import open_input
from ..tables.column_map import ColumnOf, base_of, columns_of
from ..tables.csv_rows import SECONDS, BadRows, CsvTable, number_of, read_packed_text, seconds_of_text
from ..tables.document import short
from ..tables.streams import PARQUET
from ..trace.columns import FileColumn
from .jobs import MOST_GPUS, QueuedJobs

MAX_ROWS = 1_000_000
MOST_S = 1e11  # of every time: three thousand years, where doubles still tell microseconds apart
MOST_NAMED = 12  # columns or groups in a message
WHAT = "a table of jobs in CSV or parquet with the columns submit_s, gpus, duration_s"
NAMES = {
    "submit_s": (
        "submit", "submit_time", "submitted", "submitted_time", "submission_time", "submit_timestamp",
        "submission_timestamp", "creation_timestamp", "submit_date", "qtime", "arrival", "arrival_time",
        "creation_time", "create_time", "created", "queue_time",
    ),
    "gpus": (
        "gpus", "n_gpus", "num_gpus", "gpu_num", "num_gpu", "ngpus", "ngpu", "gpu_count", "n_gpu", "gpu",
        "alloc_gpus", "req_gpus", "gpus_requested", "requested_gpus", "gpu_request", "gpu_requests", "gpu_req",
        "alloc_tres", "req_tres", "alloc_gres", "req_gres",
    ),
    "duration_s": (
        "duration", "run", "runtime", "run_time", "elapsed_raw", "elapsed", "job_runtime", "execution_time",
        "running_time", "service_time", "walltime", "wall_time",
    ),
    "start_s": ("start", "start_time", "started", "scheduled_time", "begin_time", "start_timestamp", "stime"),
    "end_s": (
        "end", "end_time", "finish", "finish_time", "finished", "ended", "completion_time", "deletion_time",
        "end_timestamp", "completion_timestamp",
    ),
    "deadline_s": ("deadline", "deadline_time"),
    "group": ("group", "vc", "cluster", "partition", "queue"),
    "job": ("job", "job_id", "jobid", "job_id_raw"),
}  # fmt: skip
OPTIONAL = ("deadline_s", "group", "job")
TEXTS = ("group", "job")
RESOURCES = ("alloc_tres", "req_tres", "alloc_gres", "req_gres")  # of Slurm: lists that hold no GPU where there is none
_TRES = re.compile(r"gres/gpu(?::[\w.-]{1,40})?=(\d{1,7})\b|^(?:gres[:/])?gpu(?::[\w.-]{1,40})?:(\d{1,7})\b")
_STEP = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?\.(?:batch|extern|interactive|\d{1,9})")
MAX_SUSPECTS = 1000  # bad rows of a parquet file that are looked at one by one


class QueueTrace(NamedTuple):
    """Jobs that a file holds, and their groups.

    Attributes:
        jobs: in the order of submission, from second zero on.
        group: the one that was read; empty for all rows.
        groups: of the whole file; empty where it names none.
        notes: what a reader should know.
    """

    jobs: QueuedJobs
    group: str
    groups: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Columns:
    """Numbers of all rows by name, group of every row (empty where there is no such column), and what is left out."""

    numbers: dict[str, Floats]
    group: Sequence[str]
    notes: tuple[str, ...]


def read_queue_trace(
    path: str | Path, group: str | None = None, columns: Mapping[str, str] | None = None
) -> QueueTrace:
    """The jobs of a file.

    Args:
        group: reads its jobs only.
        columns: which column is which field, where its name does not say it.

    Raises:
        DataError: the file cannot be read, has no rows, lacks a column, or holds a value that no job has; the group is unknown.
    """
    file = Path(path)
    with open_input(file, f"Give {WHAT}.") as opened:
        is_parquet = opened.read(len(PARQUET)) == PARQUET
    found = _of_parquet(file, columns or {}) if is_parquet else _of_csv(file, columns or {})
    if not len(found.numbers["submit_s"]):
        raise DataError(f"{path}: no jobs. Give {WHAT}.")
    return _trace(found, str(path), group)


def _chosen(header: Sequence[str], path: Path, said: Mapping[str, str]) -> dict[str, ColumnOf]:
    """Field -> its column; start and end where there is no duration."""
    found = columns_of(header, NAMES, said, str(path))
    if "submit_s" not in found and "start_s" in found:
        found["submit_s"] = found["start_s"]
    needed = ["submit_s", "gpus", *([] if {"start_s", "end_s"} <= set(found) else ["duration_s"])]
    for field in needed:
        if field not in found:
            there = ", ".join(short(name) for name in header[:MOST_NAMED] if name)
            raise DataError(
                f"{path}: the column {field} is missing; there are {there}; needed are submit_s, gpus, duration_s. "
                f"--map COLUMN={field} says which it is."
            )
    if "duration_s" in found:
        found.pop("start_s", None)
        found.pop("end_s", None)
    return found


def _of_csv(path: Path, said: Mapping[str, str]) -> _Columns:
    table = CsvTable(read_packed_text(path, WHAT), str(path), MAX_ROWS, ":")
    of_field = _chosen(table.columns, path, said)
    fields = [field for field in of_field if field not in TEXTS]
    bad, lines, groups, n_without, n_step = BadRows(path), [], [], 0, 0
    numbers: dict[str, list[float]] = {field: [] for field in fields}
    for line, row in table.rows(bad):
        if "job" in of_field and _STEP.fullmatch(row[of_field["job"].column]):
            n_step += 1
            continue
        try:
            values = {
                field: _number(row[of_field[field].column], field, of_field[field], table.place(line))
                for field in fields
            }
            if values["gpus"] == 0:
                n_without += 1
                continue
            _check(values, table.place(line), of_field)
        except DataError as error:
            bad.add(error)
            continue
        lines.append(line)
        groups.append(row[of_field["group"].column] if "group" in of_field else "")
        for field in fields:
            numbers[field].append(values[field])
    bad.check(len(lines))
    arrays = {field: np.array(values, dtype=np.float64) for field, values in numbers.items()}
    notes = (*bad.notes, *_passed_over(n_without, "job", "without a GPU"), *_passed_over(n_step, "step", "of jobs"))
    return _columns(arrays, groups, notes)


def _passed_over(n: int, what: str, which: str) -> tuple[str, ...]:
    return (f"{n:,} {what}{'s' * (n > 1)} {which} passed over",) if n else ()


def _columns(numbers: dict[str, Floats], groups: Sequence[str], notes: tuple[str, ...]) -> _Columns:
    """Columns, with durations from start and end, and without groups that are numbers: seconds in the queue."""
    if "start_s" in numbers:
        start_s, end_s = numbers.pop("start_s"), numbers.pop("end_s")
        numbers["duration_s"] = end_s - start_s
    named = any(group and number_of(group) != number_of(group) for group in groups[:1000])
    return _Columns(numbers, groups if named else [""] * len(groups), notes)


def _number(text: str, field: str, column: ColumnOf, place: str) -> float:
    """A count, or seconds: of a number in its unit, a duration, or a time of day."""
    if field == "gpus":
        found = _TRES.search(text)
        without = not found and (
            "=" in text or (base_of(column.column)[0] in RESOURCES and text in ("", "(null)", "N/A"))
        )
        value = float(found[1] or found[2]) if found else 0.0 if without else number_of(text)
    else:
        value = seconds_of_text(text) * SECONDS.get(column.unit, 1.0) if text else math.nan
    if value != value:
        what = f"{short(text)} is not a number" if text else "is empty"
        raise DataError(f"{place} {column.column}: {what}. Give seconds or a count.")
    return value


def _of_parquet(path: Path, said: Mapping[str, str]) -> _Columns:
    from ..trace.parquet_columns import checked_batches, column_names  # pyarrow takes 0.2 s to import

    of_field = _chosen(column_names(path), path, said)
    of_field.pop("job", None)
    wanted = [FileColumn(one.column, field, "text" if field == "group" else "float") for field, one in of_field.items()]
    blocks: dict[str, list[NDArray]] = {field: [] for field in of_field}
    groups: list[str] = []
    n_rows = 0
    for batch in checked_batches(path, wanted, MAX_ROWS, "Split the table.", extra=True):
        for field, one in of_field.items():
            values = batch.column(one.column)
            if field == "group":
                groups += [text or "" for text in _texts(values, path, one.column)]
            else:
                unit_s = 1.0 if field == "gpus" else SECONDS.get(one.unit, 1.0)
                blocks[field].append(values.to_numpy(zero_copy_only=False).astype(np.float64) * unit_s)
        n_rows += batch.num_rows
    numbers = {field: np.concatenate([np.empty(0), *blocks[field]]) for field in of_field if field != "group"}
    found = _columns(numbers, groups or [""] * n_rows, ())
    bad, keep = BadRows(path), np.ones(n_rows, bool)
    suspects = np.flatnonzero(~_good(found.numbers))
    keep[suspects] = False
    without = suspects[found.numbers["gpus"][suspects] == 0]
    for row in np.setdiff1d(suspects, without)[:MAX_SUSPECTS].tolist():
        try:
            _check(
                {field: float(values[row]) for field, values in found.numbers.items()},
                f"{path}: row {row + 1}",
                of_field,
            )
        except DataError as error:
            bad.add(error)
    bad.n = len(suspects) - len(without)
    bad.check(int(keep.sum()))
    kept = {field: values[keep] for field, values in found.numbers.items()}
    group = [one for one, good in zip(found.group, keep.tolist(), strict=True) if good]
    return _Columns(kept, group, (*bad.notes, *_passed_over(len(without), "job", "without a GPU")))


def _texts(values: Any, path: Path, name: str) -> list[str]:
    try:
        return values.to_pylist()
    except UnicodeDecodeError:
        raise DataError(f"{path} {name}: holds text that is not UTF-8") from None


def _rules(values: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """Field, whether its value is one that a job may have, and the rule in words."""
    gpus, submit_s = values["gpus"], values["submit_s"]
    duration_s = values["duration_s"] if "duration_s" in values else values["end_s"] - values["start_s"]
    rules = [
        ("submit_s", abs(submit_s) <= MOST_S, f"must lie between -{MOST_S:g} and {MOST_S:g} seconds"),
        (
            "gpus",
            (gpus >= 1) & (gpus <= MOST_GPUS) & (gpus % 1.0 == 0),
            f"must be a whole number from 1 to {MOST_GPUS:,}",
        ),
        ("duration_s", (duration_s > 0) & (duration_s <= MOST_S), f"must be above 0 and at most {MOST_S:g} seconds"),
    ]
    if "deadline_s" in values:
        later = (values["deadline_s"] > submit_s) & (values["deadline_s"] <= 2 * MOST_S)
        rules.append(("deadline_s", later, "must lie after submit_s"))
    return rules


def _good(numbers: Mapping[str, Floats]) -> NDArray[np.bool_]:
    """Marks the rows that are jobs."""
    with np.errstate(invalid="ignore"):
        return np.logical_and.reduce([good for _, good, _ in _rules(numbers)])


def _check(values: Mapping[str, float], place: str, of_field: Mapping[str, ColumnOf]) -> None:
    """Raises for the first value that no job has."""
    for field, good, rule in _rules(values):
        if not good:
            name = of_field[field].column if field in of_field else field
            value = values[field] if field in values else values["end_s"] - values["start_s"]
            raise DataError(f"{place} {name}: {'is empty' if value != value else f'{value:g}'}, but it {rule}")


def _trace(columns: _Columns, path: str, group: str | None) -> QueueTrace:
    groups = tuple(sorted(set(columns.group) - {""}))
    if group is not None and group not in groups:
        named = (
            f"; there are {', '.join(map(short, groups[:MOST_NAMED]))}"
            if groups
            else ": no column vc, cluster, queue or group"
        )
        raise DataError(f"{path}: the group {short(group)} is unknown{named}")
    keep = np.array([group is None or one == group for one in columns.group])
    numbers = {field: values[keep] for field, values in columns.numbers.items()}
    rest = [numbers[field] for field in ("deadline_s", "duration_s", "gpus", "submit_s") if field in numbers]
    order = np.lexsort(rest)
    first_s = numbers["submit_s"].min()
    deadline_s = numbers["deadline_s"][order] - first_s if "deadline_s" in numbers else None
    jobs = QueuedJobs(
        numbers["submit_s"][order] - first_s,
        numbers["gpus"][order].astype(np.int32),
        numbers["duration_s"][order],
        deadline_s,
    )
    return QueueTrace(jobs, group or "", groups, (*columns.notes, *_notes(np.stack(rest), groups, group)))


def _notes(rows: Floats, groups: Sequence[str], group: str | None) -> Iterator[str]:
    if group is None and len(groups) > 1:
        yield f"the file names {len(groups)} groups, which share one cluster here; --group NAME takes one of them"
    copies = rows.shape[1] - len(np.unique(rows, axis=1).T)
    if copies:
        yield f"{copies:,} jobs are the same as another in every column; all were kept, as jobs submitted together"
