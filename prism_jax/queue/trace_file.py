"""Traces of a cluster's queue: one row per job, CSV (gzip too) or parquet.

| column | what |
|---|---|
| submit_s | seconds since any origin |
| gpus (or n_gpus, num_gpus) | that the job needs |
| duration_s (or run_s, runtime_s) | seconds that it ran |
| deadline_s | optional, on the clock of submit_s |
| vc, cluster, queue or group | optional: the part of the cluster that it belongs to |

Other columns are passed over, and the order of rows says nothing: jobs of one second are ordered by size and duration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.read_file import open_input
from ..tables.csv_rows import CsvTable, number_of, read_packed_text
from ..tables.document import short
from ..trace.columns import FileColumn
from .jobs import MOST_GPUS, QueuedJobs

MAX_ROWS = 1_000_000
MOST_S = 1e11  # of every time: three thousand years, where doubles still tell microseconds apart
PARQUET = b"PAR1"
MOST_NAMED = 12  # columns or groups in a message
WHAT = "a table of jobs in CSV or parquet with the columns submit_s, gpus, duration_s"
NAMES = {
    "submit_s": ("submit_s",),
    "gpus": ("gpus", "n_gpus", "num_gpus"),
    "duration_s": ("duration_s", "run_s", "runtime_s"),
    "deadline_s": ("deadline_s",),
    "group": ("group", "vc", "cluster", "queue"),
}
OPTIONAL = ("deadline_s", "group")
Place = Callable[[int], str]


class QueueTrace(NamedTuple):
    """What a file holds.

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
    """Numbers of all rows by name, group of every row (empty where there is no such column), and how messages call a row."""

    numbers: dict[str, Floats]
    group: Sequence[str]
    place: Place


def read_queue_trace(path: str | Path, group: str | None = None) -> QueueTrace:
    """The jobs of a file.

    Args:
        group: reads its jobs only.

    Raises:
        DataError: the file cannot be read, has no rows, lacks a column, or holds a value that no job has; the group is unknown.
    """
    file = Path(path)
    with open_input(file, f"Give {WHAT}.") as opened:
        is_parquet = opened.read(len(PARQUET)) == PARQUET
    columns = _of_parquet(file) if is_parquet else _of_csv(file)
    if not len(columns.numbers["submit_s"]):
        raise DataError(f"{path}: no jobs. Give {WHAT}.")
    _check(columns)
    return _trace(columns, str(path), group)


def _chosen(header: Sequence[str], path: Path) -> dict[str, str]:
    """Field -> its column."""
    found = {}
    for field, names in NAMES.items():
        here = [name for name in names if name in header]
        if len(here) > 1:
            raise DataError(f"{path}: the columns {' and '.join(here)} mean the same. Keep one.")
        if here:
            found[field] = here[0]
        elif field not in OPTIONAL:
            there = ", ".join(short(name) for name in header[:MOST_NAMED] if name)
            raise DataError(
                f"{path}: the column {names[0]} is missing; there are {there}; needed are submit_s, gpus, duration_s"
            )
    return found


def _of_csv(path: Path) -> _Columns:
    table = CsvTable(read_packed_text(path, WHAT), str(path), MAX_ROWS, ":")
    of_field = _chosen(table.columns, path)
    fields = [field for field in of_field if field != "group"]
    lines, groups = [], []
    numbers: dict[str, list[float]] = {field: [] for field in fields}
    for line, row in table.rows():
        lines.append(line)
        groups.append(row[of_field["group"]] if "group" in of_field else "")
        for field in fields:
            text = row[of_field[field]]
            value = number_of(text)
            if value != value:
                what = f"{short(text)} is not a number" if text else "is empty"
                raise DataError(f"{table.place(line)} {of_field[field]}: {what}. Give seconds or a count.")
            numbers[field].append(value)
    arrays = {field: np.array(values, dtype=np.float64) for field, values in numbers.items()}
    return _Columns(arrays, groups, lambda row: table.place(lines[row]))


def _of_parquet(path: Path) -> _Columns:
    from ..trace.parquet_columns import checked_batches, column_names  # pyarrow takes 0.2 s to import

    of_field = _chosen(column_names(path), path)
    wanted = [FileColumn(name, field, "text" if field == "group" else "float") for field, name in of_field.items()]
    blocks: dict[str, list[NDArray]] = {field: [] for field in of_field}
    groups: list[str] = []
    n_rows = 0
    for batch in checked_batches(path, wanted, MAX_ROWS, "Split the table.", extra=True):
        for field, name in of_field.items():
            values = batch.column(name)
            if values.null_count:
                row = n_rows + values.is_null().index(True).as_py()
                raise DataError(f"{path}: row {row + 1} {name}: is empty. Give a value.")
            if field == "group":
                groups += _texts(values, path, name)
            else:
                blocks[field].append(values.to_numpy(zero_copy_only=False).astype(np.float64))
        n_rows += batch.num_rows
    numbers = {field: np.concatenate([np.empty(0), *blocks[field]]) for field in of_field if field != "group"}
    return _Columns(numbers, groups or [""] * n_rows, lambda row: f"{path}: row {row + 1}")


def _texts(values: Any, path: Path, name: str) -> list[str]:
    try:
        return values.to_pylist()
    except UnicodeDecodeError:
        raise DataError(f"{path} {name}: holds text that is not UTF-8") from None


def _check(columns: _Columns) -> None:
    """Raises for the first value that no job has."""
    numbers = columns.numbers
    gpus, duration_s, submit_s = numbers["gpus"], numbers["duration_s"], numbers["submit_s"]
    checks = [
        ("submit_s", np.abs(submit_s) <= MOST_S, f"must lie between -{MOST_S:g} and {MOST_S:g} seconds"),
        (
            "gpus",
            (gpus >= 1) & (gpus <= MOST_GPUS) & (gpus == np.round(gpus)),
            f"must be a whole number from 1 to {MOST_GPUS:,}",
        ),
        ("duration_s", (duration_s > 0) & (duration_s <= MOST_S), f"must be above 0 and at most {MOST_S:g} seconds"),
    ]
    if "deadline_s" in numbers:
        later = (numbers["deadline_s"] > submit_s) & (numbers["deadline_s"] <= 2 * MOST_S)
        checks.append(("deadline_s", later, "must lie after submit_s"))
    for field, good, rule in checks:
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise DataError(f"{columns.place(row)} {field}: {numbers[field][row]:g}, but it {rule}")


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
    return QueueTrace(jobs, group or "", groups, tuple(_notes(np.stack(rest), groups, group)))


def _notes(rows: Floats, groups: Sequence[str], group: str | None) -> Iterator[str]:
    if group is None and len(groups) > 1:
        yield f"the file names {len(groups)} groups, which share one cluster here; --group NAME takes one of them"
    copies = rows.shape[1] - len(np.unique(rows, axis=1).T)
    if copies:
        yield f"{copies:,} jobs are the same as another in every column; all were kept, as jobs submitted together"
