"""Traces of the published straggler analysis: a parquet file with one row per op of one worker per (data-parallel rank, stage).

Columns: dp_rank, stage, rank (global), step, optype, start_ts and duration (s), mb_id (micro-batch) and mc (model chunk of the
stage), -1 where an op has none. The further columns seq_id and gmc follow from these and are not read.
Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", arXiv 2505.05713, and its data.
"""

from __future__ import annotations

from pathlib import Path

from ...recorded.trace.op_table import OpTable
from .op_columns import Column
from .parquet_columns import read_columns

COLUMNS = (
    Column("dp_rank", "dp", "int"),
    Column("stage", "pp", "int"),
    Column("rank", "rank", "int"),
    Column("step", "step", "int"),
    Column("optype", "op_type", "text"),
    Column("start_ts", "start_s", "float"),
    Column("duration", "duration_s", "float"),
    Column("mc", "chunk", "int"),
    Column("mb_id", "micro_batch", "int"),
)
DISTINCTIVE = {
    "dp_rank",
    "stage",
    "optype",
    "start_ts",
    "duration",
    "mc",
    "mb_id",
    "gmc",
    "seq_id",
}  # not in plain tables


def read_straggler_parquet(path: Path) -> OpTable:
    """The ops of `path`.

    Raises:
        DataError: not a whole parquet file, a column is missing or of the wrong type, an impossible value; names row and field.
    """
    return read_columns(path, COLUMNS, extra=True).table()
