"""Broken parquets of the straggler analysis."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .kinds import broken, bytes_file, written

STRAGGLER_ROWS = 6


def straggler(path: Path, **changes: Any) -> Path:
    """A tiny straggler-analysis parquet of two workers and three steps; a change replaces, removes (None) or adds a column."""
    n = STRAGGLER_ROWS
    columns: dict[str, Any] = {
        "dp_rank": pa.array([0, 1] * 3, pa.int8()),
        "stage": pa.array([0] * n, pa.int8()),
        "rank": pa.array([0, 1] * 3, pa.int16()),
        "step": pa.array([4, 4, 5, 5, 6, 6], pa.int64()),
        "optype": pa.array(["forward-compute"] * n).dictionary_encode(),
        "start_ts": pa.array([0.0] * n, pa.float32()),
        "duration": pa.array([0.5] * n, pa.float32()),
        "seq_id": pa.array([0] * n, pa.int32()),
        "mc": pa.array([0] * n, pa.int8()),
        "mb_id": pa.array([0] * n, pa.int8()),
        "gmc": pa.array([0] * n, pa.int16()),
    }
    columns.update(changes)
    pq.write_table(pa.table({name: values for name, values in columns.items() if values is not None}), path)
    return path


def parquet_file(name: str, match: str, **changes: Any) -> None:
    """A kind that is a straggler-analysis parquet with something changed."""
    broken(name, match)(lambda folder: straggler(folder / "trace-X.parquet", **changes))


@broken("truncated parquet", r"trace-X\.parquet: not a whole parquet file: .*copy it again")
def _(folder: Path) -> Path:
    path = straggler(folder / "trace-X.parquet")
    return written(path, path.read_bytes()[:-200])


@broken("parquet whose middle is damaged", r"trace-X\.parquet")
def _(folder: Path) -> Path:
    path = straggler(folder / "trace-X.parquet")
    content = bytearray(path.read_bytes())
    content[8:60] = b"\xff" * 52
    return written(path, bytes(content))


bytes_file("parquet of which only the ends are left", "trace.parquet", b"PAR1PAR1", ": not a whole parquet")
bytes_file(
    "parquet whose footer claims 4 GB", "t.parquet", b"PAR1" + struct.pack("<I", 2**32 - 1) + b"PAR1", ": not a whole"
)
bytes_file("text that is called parquet", "t.parquet", b"step,rank\n1,2\n", ": not a parquet file")
parquet_file("parquet with a missing column", r"trace-X\.parquet: the column start_ts is missing", start_ts=None)
parquet_file("parquet with text for a number", r"parquet step: holds string, but it must hold whole", step=["a"] * 6)
parquet_file("parquet with fractions for ranks", r"parquet dp_rank: holds double, but", dp_rank=[0.0, 1.0] * 3)
parquet_file("parquet with lists for a number", r"parquet step: holds list<.*, but it must hold whole", step=[[1]] * 6)
parquet_file("parquet with numbers for names", r"parquet optype: holds int64, but it must hold text", optype=[1] * 6)
parquet_file("parquet with an empty value", r"parquet: row 3 stage: is empty", stage=pa.array([0, 0, None, 0, 0, 0]))
parquet_file("parquet with an empty name", r"parquet: row 2 optype: is empty", optype=["a", None, "a", "a", "a", "a"])
parquet_file(
    "parquet with a start that is NaN", r"parquet: row 5 start_ts: nan is not", start_ts=[0.0] * 4 + [np.nan, 0.0]
)
parquet_file("parquet with a negative duration", r"row 6 duration: -1\.0 is not between 0", duration=[1.0] * 5 + [-1.0])
parquet_file("parquet with an endless duration", r"row 1 duration: inf is not between", duration=[np.inf] * 6)
parquet_file("parquet with a negative rank", r"row 1 dp_rank: -3 is not between", dp_rank=[-3] * 6)
parquet_file(
    "parquet with a step beyond any integer",
    r"row 1 step: 18446744073709551615 is not",
    step=pa.array([2**64 - 1] * 6, pa.uint64()),
)
parquet_file(
    "parquet whose names hold escape codes", r"row 1 optype: .* cannot be printed", optype=["\x1b[2Jforward"] * 6
)
parquet_file(
    "parquet whose names are not UTF-8",
    r"parquet optype: holds text that is not UTF-8",
    optype=pa.array([b"\xff\xfe"] * 6).view(pa.string()),
)
parquet_file("parquet with a name of a megabyte", r"optype: .* (longer than 200|at most 200)", optype=["x" * 2**20] * 6)
parquet_file("parquet in which a worker is missing", r"nothing was recorded on dp rank 0, stage 1", stage=[0, 1] * 3)
parquet_file(
    "parquet in which a stage says that a million are missing",
    r"6 rows, but pp 900001",
    stage=pa.array([0, 900_000] * 3, pa.int32()),
)
parquet_file(
    "parquet without a complete step", r"no step is complete on every worker", optype=["a", "b", "c", "d", "e", "f"]
)


@broken("parquet without rows", r"trace-X\.parquet: no recorded ops")
def _(folder: Path) -> Path:
    path = straggler(folder / "trace-X.parquet")
    pq.write_table(pq.read_table(path)[:0], path)
    return path


@broken("parquet of something else", r"other\.parquet: not a trace: its columns")
def _(folder: Path) -> Path:
    pq.write_table(pa.table({"name": ["a"], "age": [1]}), folder / "other.parquet")
    return folder / "other.parquet"


@broken("parquet of 50 million rows and one, in a few kilobytes", r"50,000,001 rows, but at most")
def _(folder: Path) -> Path:
    pq.write_table(pa.table({"step": pa.nulls(50_000_001), "dp_rank": pa.nulls(50_000_001)}), folder / "big.parquet")
    return folder / "big.parquet"


@broken("parquet that unpacks to a thousand times its size", r"bomb\.parquet: [0-9,]+ bytes of values in 3 rows")
def _(folder: Path) -> Path:
    text = ["x" * 40_000_000] * 2 + ["y"]
    columns = {"optype": pa.array(text), "dp_rank": pa.array([0] * 3)}
    for name in ("stage", "rank", "step", "mc", "mb_id"):
        columns[name] = pa.array([0] * 3)
    for name in ("start_ts", "duration"):
        columns[name] = pa.array([0.0] * 3)
    pq.write_table(pa.table(columns), folder / "bomb.parquet", compression="zstd", use_dictionary=False)
    return folder / "bomb.parquet"
