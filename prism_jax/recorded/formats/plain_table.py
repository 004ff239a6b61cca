"""Reads tables of recorded ops: the plain one, to write when the tool that recorded them has no reader here, and that of the
published straggler analysis (`STRAGGLER_COLUMNS`).

A CSV file (`.csv`, `.csv.gz`) whose first line names the columns, or a parquet file. One row per op and worker, in any order of
rows and columns; other columns are an error.

| column | unit | needed | meaning |
|---|---|---|---|
| step | | yes | number of the training step |
| op_type | | yes | kind of work, e.g. forward-compute, backward-compute, forward-send, grads-reduce-scatter, optimizer |
| start_s | s | yes | start, on a clock that all workers share; its zero is free and may differ from step to step |
| duration_s | s | yes | end minus start, waiting for peers included |
| dp, pp, tp | | 0 | data-parallel rank, pipeline stage and tensor-parallel rank of the worker, each counted from 0 |
| rank | | -1 | global rank of the worker; -1 for unknown |
| micro_batch | | -1 | micro-batch of the op, -1 for none |
| chunk | | -1 | model chunk within the stage (interleaved schedules), -1 for none |
| stream | | empty | where it ran: ops of one stream of a worker run one after another. Empty: one stream per op_type |
| group | | empty | ops of one step with the same group meet: none finishes before the last has started |

Whole numbers are written without a point. An empty field of a column with a default means the default (in CSV only).
Rows that are the same as one before in every column count once, as when a file was appended to itself.
Record at least one worker of every (dp, pp); steps in which workers did different ops are left out. At most 8 million rows
are read, which take 2 GB of memory.

Example:
    step,dp,pp,op_type,micro_batch,start_s,duration_s
    0,0,0,forward-compute,0,0.000,0.0151
    0,0,0,backward-compute,0,0.016,0.0302
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...core.errors import DataError
from ...tables.streams import PARQUET
from ...trace import columns as csv_columns
from ...trace.columns import FileColumn
from ...trace.step_log import FileStart, TraceFormat
from ...trace.trace import NONE, OpTable

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, as in Fibonacci hashing


def without_copies(table: OpTable) -> OpTable:
    """The table without rows that are the same as one before in every column, with a note of how many there were.

    Ops of a stream run one after another, so that two of the same start and duration are one. Those that took no time stay.
    """
    columns = _columns(table)
    marks = _marks(columns)
    ordered = np.sort(marks)
    if not (ordered[1:] == ordered[:-1]).any():
        return table
    copied = _copied(columns, np.argsort(marks, kind="stable")) & (table.duration_s > 0.0)
    n = int(copied.sum())
    if n == 0:
        return table
    kept = {name: values[~copied] for name, values in columns.items()}
    note = f"{n:,} of {len(table):,} rows are the same as one before and left out"
    return replace(table, **kept, notes=(*table.notes, note))  # pyright: ignore[reportArgumentType]


def _columns(table: OpTable) -> dict[str, NDArray]:
    found = {item.name: getattr(table, item.name) for item in fields(table)}
    return {name: values for name, values in found.items() if isinstance(values, np.ndarray)}


def _marks(columns: dict[str, NDArray]) -> NDArray[np.uint64]:
    """A number [row] that is the same for rows that are the same, and else the same by chance only."""
    marks = np.zeros(len(columns["step"]), np.uint64)
    for values in columns.values():
        wide = np.float64 if values.dtype.kind == "f" else np.int64
        marks = (marks ^ (values.astype(wide) + wide(0)).view(np.uint64)) * _MULTIPLIER
        marks ^= marks >> np.uint64(29)
    return marks


def _copied(columns: dict[str, NDArray], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Marks rows [row] that equal the one before them in an order in which equal rows are neighbours, first ones first."""
    same = np.ones(len(order) - 1, bool)
    for values in columns.values():
        same &= values[order[1:]] == values[order[:-1]]
    copied = np.zeros(len(order), bool)
    copied[order[1:]] = same
    return copied


COLUMNS = (
    FileColumn("step", "step", "int"),
    FileColumn("rank", "rank", "int", NONE),
    FileColumn("dp", "dp", "int", 0),
    FileColumn("pp", "pp", "int", 0),
    FileColumn("tp", "tp", "int", 0),
    FileColumn("op_type", "op_type", "text"),
    FileColumn("micro_batch", "micro_batch", "int", NONE),
    FileColumn("chunk", "chunk", "int", NONE),
    FileColumn("start_s", "start_s", "float"),
    FileColumn("duration_s", "duration_s", "float"),
    FileColumn("stream", "stream", "text", ""),
    FileColumn("group", "group", "text", ""),
)


def read_plain_csv(path: Path) -> OpTable:
    """The ops of a plain table in CSV, packed with gzip or not.

    Raises:
        DataError: names file:line and field.
    """
    return csv_columns.read_columns(path, COLUMNS).table()


def read_plain_parquet(path: Path) -> OpTable:
    """The ops of a plain table in parquet.

    Raises:
        DataError: names file, row and field.
    """
    from ...trace.parquet_columns import read_columns  # pyarrow takes 0.2 s to import

    return read_columns(path, COLUMNS, extra=False).table()


def _is_csv(begins: FileStart) -> bool:
    """Whether the name says so or the first line is a list of column names."""
    names = {name.strip().strip('"') for name in begins.text.partition("\n")[0].split(",")}
    return begins.name.endswith(".csv") or len(names & {column.name for column in COLUMNS}) >= 2


def _is_parquet(begins: FileStart) -> bool:
    """Whether the content says so.

    Raises:
        DataError: only the name does.
    """
    if begins.start.startswith(PARQUET):
        return True
    if begins.name.endswith(".parquet"):
        raise DataError(f"{begins.path}: not a parquet file: it does not begin with PAR1. Export it again.")
    return False


PLAIN_CSV = TraceFormat(
    "plain CSV", "plain tables of ops (CSV)", _is_csv, lambda files: without_copies(read_plain_csv(files[0]))
)
PLAIN_PARQUET = TraceFormat(
    "plain parquet",
    "plain tables of ops (parquet)",
    _is_parquet,
    lambda files: without_copies(read_plain_parquet(files[0])),
)


# Traces of the published straggler analysis: a parquet file with one row per op of one worker per (data-parallel rank, stage).
# rank is global, start_ts and duration are in seconds, mb_id is the micro-batch and mc the model chunk of the stage, -1 where an
# op has none. The further columns seq_id and gmc follow from these and are not read.
# Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", arXiv 2505.05713, and its data.
STRAGGLER_COLUMNS = (
    FileColumn("dp_rank", "dp", "int"),
    FileColumn("stage", "pp", "int"),
    FileColumn("rank", "rank", "int"),
    FileColumn("step", "step", "int"),
    FileColumn("optype", "op_type", "text"),
    FileColumn("start_ts", "start_s", "float"),
    FileColumn("duration", "duration_s", "float"),
    FileColumn("mc", "chunk", "int"),
    FileColumn("mb_id", "micro_batch", "int"),
)
DISTINCTIVE = {
    "dp_rank", "stage", "optype", "start_ts", "duration", "mc", "mb_id", "gmc", "seq_id",
}  # fmt: skip  # not in plain tables


def read_straggler_parquet(path: Path) -> OpTable:
    """The ops of `path`.

    Raises:
        DataError: not a whole parquet file, a column is missing or of the wrong type, an impossible value; names row and field.
    """
    from ...trace.parquet_columns import read_columns  # pyarrow takes 0.2 s to import

    return read_columns(path, STRAGGLER_COLUMNS, extra=True).table()


def _is_straggler_parquet(begins: FileStart) -> bool:
    """Whether a parquet file has more columns of this kind than of a plain table.

    Raises:
        DataError: it has none of either.
    """
    if not begins.start.startswith(PARQUET):
        return False
    from ...trace.parquet_columns import column_names

    names = set(column_names(begins.path))
    plain = {column.name for column in COLUMNS} - {"step", "rank"}  # both kinds have these
    if not names & (DISTINCTIVE | plain):
        raise DataError(
            f"{begins.path}: not a trace: its columns are neither those of the straggler analysis "
            f"({', '.join(sorted(DISTINCTIVE))}) nor those of a plain table "
            f"({', '.join(column.name for column in COLUMNS)})"
        )
    return len(names & DISTINCTIVE) > len(names & plain)


STRAGGLER_PARQUET = TraceFormat(
    "straggler parquet",
    "the straggler-analysis parquet",
    _is_straggler_parquet,
    lambda files: read_straggler_parquet(files[0]),
)
