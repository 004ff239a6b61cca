"""The plain table of recorded ops: what to write when the tool that recorded them has no reader here.

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
Rows that are the same as one before in every column count once.
Record at least one worker of every (dp, pp); steps in which workers did different ops are left out. At most 8 million rows
are read, which take 2 GB of memory.

Example:
    step,dp,pp,op_type,micro_batch,start_s,duration_s
    0,0,0,forward-compute,0,0.000,0.0151
    0,0,0,backward-compute,0,0.016,0.0302
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ...recorded.trace.op_table import NONE, OpTable
from ..write import atomic_path
from . import csv_columns
from .copied_rows import without_copies
from .format import FileStart, TraceFormat
from .op_columns import Column
from .refuse import PARQUET

COLUMNS = (
    Column("step", "step", "int"),
    Column("rank", "rank", "int", NONE),
    Column("dp", "dp", "int", 0),
    Column("pp", "pp", "int", 0),
    Column("tp", "tp", "int", 0),
    Column("op_type", "op_type", "text"),
    Column("micro_batch", "micro_batch", "int", NONE),
    Column("chunk", "chunk", "int", NONE),
    Column("start_s", "start_s", "float"),
    Column("duration_s", "duration_s", "float"),
    Column("stream", "stream", "text", ""),
    Column("group", "group", "text", ""),
)
BLOCK_ROWS = 65_536


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
    from .parquet_columns import read_columns  # pyarrow takes 0.2 s to import

    return read_columns(path, COLUMNS, extra=False).table()


def write_plain_table(table: OpTable, path: str | Path) -> None:
    """Writes `table`, whole or not at all, as its ending says: `.csv`, `.csv.gz` or `.parquet`. Numbers keep every digit.

    Raises:
        DataError: another ending, or the file cannot be written.
    """
    name = Path(path).name.lower()
    if not name.endswith((".csv", ".csv.gz", ".parquet")):
        raise DataError(f"{path}: a plain table ends in .csv, .csv.gz or .parquet")
    with atomic_path(path) as temporary:
        if name.endswith(".parquet"):
            _write_parquet(table, temporary)
        elif name.endswith(".gz"):
            with (
                temporary.open("wb") as raw,
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
                io.TextIOWrapper(packed, encoding="utf-8", newline="") as text,
            ):
                _write_csv(table, text)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                _write_csv(table, text)


def _write_csv(table: OpTable, file: IO[str]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([column.name for column in COLUMNS])
    for block in _blocks(table):
        writer.writerows(zip(*(values.tolist() for values in block), strict=True))  # Python floats print all digits


def _write_parquet(table: OpTable, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"int": pa.int64(), "float": pa.float64(), "text": pa.string()}
    schema = pa.schema([(column.name, types[column.kind]) for column in COLUMNS])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for block in _blocks(table):
            arrays = [pa.array(values.tolist(), kind) for values, kind in zip(block, schema.types, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _blocks(table: OpTable) -> Iterator[list[NDArray]]:
    """Columns of some rows at a time, texts written out."""
    names = {
        "op_type": np.array(table.op_types, dtype=object),
        "stream": np.array(table.streams, dtype=object),
        "group": np.array([*table.groups, ""], dtype=object),  # code -1, for none, is the last
    }
    for first in range(0, len(table), BLOCK_ROWS):
        rows = slice(first, first + BLOCK_ROWS)
        codes = {column.field: getattr(table, column.field)[rows] for column in COLUMNS}
        yield [names[field][code] if field in names else code for field, code in codes.items()]


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
