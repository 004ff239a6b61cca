"""Traces of the published straggler analysis: a parquet file with one row per op of one worker per (data-parallel rank, stage).

Columns: dp_rank, stage, rank (global), step, optype, start_ts and duration (s), mb_id (micro-batch) and mc (model chunk of the
stage), -1 where an op has none. The further columns seq_id and gmc follow from these and are not read.
Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", arXiv 2505.05713, and its data.
"""

from __future__ import annotations

from pathlib import Path

from ...core.errors import DataError
from ...tables.streams import PARQUET
from ...trace.columns import FileColumn
from ...trace.step_log import FileStart, TraceFormat
from ...trace.trace import OpTable
from . import plain_table

COLUMNS = (
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

    return read_columns(path, COLUMNS, extra=True).table()


def _is_straggler_parquet(begins: FileStart) -> bool:
    """Whether a parquet file has more columns of this kind than of a plain table.

    Raises:
        DataError: it has none of either.
    """
    if not begins.start.startswith(PARQUET):
        return False
    from ...trace.parquet_columns import column_names

    names = set(column_names(begins.path))
    plain = {column.name for column in plain_table.COLUMNS} - {"step", "rank"}  # both kinds have these
    if not names & (DISTINCTIVE | plain):
        raise DataError(
            f"{begins.path}: not a trace: its columns are neither those of the straggler analysis "
            f"({', '.join(sorted(DISTINCTIVE))}) nor those of a plain table "
            f"({', '.join(column.name for column in plain_table.COLUMNS)})"
        )
    return len(names & DISTINCTIVE) > len(names & plain)


STRAGGLER_PARQUET = TraceFormat(
    "straggler parquet",
    "the straggler-analysis parquet",
    _is_straggler_parquet,
    lambda files: read_straggler_parquet(files[0]),
)
