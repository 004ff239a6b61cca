"""Kinds of broken measurement files: how to make each, and what the one message about it must say."""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.files.broken import Broken

HEADER = "kernel,gpu,time_ms"
ROW = "gemm,1,2.5\n"


def _file(name: str, file: str, content: bytes | Callable[[], bytes], match: str) -> Broken:
    """What the message says stands after the name of the file; nothing where the file is readable all the same."""

    def make(folder: Path) -> Path:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content())
        return folder / file

    return Broken(name, make, match and re.escape(file) + match)


def _csv(name: str, text: str, match: str) -> Broken:
    return _file(name, "times.csv", text.encode(), match)


def _parquet(name: str, table: pa.Table, match: str) -> Broken:
    def make(folder: Path) -> Path:
        pq.write_table(table, folder / "times.parquet")
        return folder / "times.parquet"

    return Broken(name, make, r"times\.parquet" + match)


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.csv")
    return folder / "pipe.csv"


def _cut_parquet(folder: Path) -> Path:
    path = folder / "times.parquet"
    pq.write_table(pa.table({"kernel": ["gemm"] * 999}), path)
    path.write_bytes(path.read_bytes()[:-40])
    return path


GOOD = f"{HEADER}\n{ROW}".encode()
NCCL_HEADER = (
    "# nThread 1 nGpus 2\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw"
    "   busbw #wrong\n"
)
BROKEN = [
    _file("empty", "times.csv", b"", ": the file is empty"),
    _file("only blank lines", "times.csv", b"\n \n\n", ": the file is empty"),
    _csv("only a header", HEADER + "\n", ": a header and no rows"),
    _csv("a header without end of line", HEADER, ": a header and no rows"),
    _csv("no header", "gemm,1,2.5\n" * 3, ": no column kernel"),
    _csv("other columns", "a,b\n1,2\n", ": no column kernel .* The file has a, b"),
    _csv("a row with more fields", f"{HEADER}\n{ROW}gemm,1,2,5\n", ":3: 4 fields, but the header has 3"),
    _csv("all rows with more fields", f"{HEADER}\n" + "gemm,1,2,5\n" * 3, ".*more fields than the 3 of the header"),
    _csv("a quote without end", f'{HEADER}\n"gemm,1,2.5\n', ": (not a readable table|none of 1 rows)"),
    _csv("10,000 columns", ",".join(f"c{i}" for i in range(10_000)) + "\n1\n", ":1: 10,000 columns"),
    _csv("a column twice", "kernel,gpu,time_ms,time_ms\ngemm,1,2,3\n", ": column time_ms is there 2 times"),
    _csv("a unit that is not said", "kernel,gpu,duration\ngemm,1,2\n", ": the unit of duration .*--unit duration=ms"),
    _csv("no valid row", f"{HEADER}\ngemm,1,nan\ngemm,2,-1\n", ": none of 2 rows is left"),
    _csv("words for times", f"{HEADER}\ngemm,1,fast\n", r": none of 1 rows is left \(1 duration_s is not a number"),
    _file("Latin-1", "times.csv", GOOD + b"caf\xe9,1,2\n", r":?\d*: not UTF-8 text"),
    _file("Latin-1 far behind", "times.csv", GOOD + ROW.encode() * 200_000 + b"caf\xe9,1,2\n", ": not UTF-8 text"),
    _file("Latin-1 in the header", "times.csv", b"caf\xe9," + GOOD, ":1: not UTF-8 text"),
    _file("UTF-16", "times.csv", GOOD.decode().encode("utf-16"), ": UTF-16 text"),
    _file("binary", "times.csv", bytes(range(256)) * 20, ": a binary file"),
    _file("binary without ending", "times", b"\0\1\2" * 99, ": a binary file"),
    _file("a NUL far behind", "times.csv", GOOD + ROW.encode() * 20_000 + b"\0\0\n", r""),
    _file("an endless header", "times.csv", b"a" * 3_000_000, ":1: a line of more than"),
    _file("gzip that is cut", "times.csv.gz", gzip.compress(GOOD + ROW.encode() * 999)[:-20], ": .*ends too early"),
    _file(
        "gzip that is cut far behind",
        "times.csv.gz",
        lambda: gzip.compress(GOOD + b"".join(b"gemm,%d,%d\n" % (i, i * i) for i in range(99_999)))[:-50_000],
        ": the gzip file ends too early",
    ),
    _file("gzip that is damaged", "times.csv.gz", b"\x1f\x8b\x08\x00" + b"\xff" * 60, ": a damaged gzip"),
    _file("gzip of nothing", "times.csv.gz", gzip.compress(b""), ": the file is empty"),
    _file("gzip bomb", "times.csv.gz", lambda: gzip.compress(GOOD + b"\n" * 100_000_000), ": unpacks to more than 100"),
    _file("zstd that is damaged", "times.csv.zst", b"\x28\xb5\x2f\xfd" + b"x" * 50, ": a damaged zstd file"),
    _file("zip", "times.zip", b"PK\x03\x04" + b"x" * 50, ": packed with zip"),
    _file("JSON", "times.json", b'{"kernel": ["gemm"], "time_ms": [1]}', ": JSON"),
    _file("netCDF", "fit.nc", b"\x89HDF\r\n\x1a\n" + b"\0" * 99, ": a netCDF or HDF5 file"),
    _file("a text", "notes.txt", b"The times are in the other file.\n", ": neither a table nor a log"),
    _file("parquet in name only", "times.parquet", GOOD, ": not a parquet file"),
    _file("parquet inside gzip", "times.parquet.gz", gzip.compress(b"PAR1" * 9), ".*parquet inside a packed file"),
    _file("parquet without content", "times.parquet", b"PAR1" * 9, ": a damaged parquet file"),
    Broken("parquet that is cut", _cut_parquet, r"times\.parquet: a damaged parquet file"),
    _parquet("parquet without rows", pa.table({"kernel": pa.array([], pa.string())}), ": no rows"),
    _parquet("parquet of lists", pa.table({"kernel": [[1, 2]]}), ": no column of numbers or texts"),
    _parquet("parquet of other columns", pa.table({"a": [1.0]}), ": no column kernel"),
    _parquet("parquet with 3,000 columns", pa.table({f"c{i}": [1] for i in range(3000)}), ": 3,000 columns"),
    Broken("a folder", lambda folder: folder, r": a folder, not a file"),
    Broken("nothing there", lambda folder: folder / "absent.csv", r"absent\.csv: cannot be read: No such file"),
    Broken("a pipe", _pipe, r"pipe\.csv: not a regular file"),
    Broken("a name with a NUL", lambda folder: folder / "a\0b.csv", r"not a usable file name"),
    _file("nccl-tests without rows", "all_reduce.log", NCCL_HEADER.encode(), ": .* without a row of results"),
    _file(
        "nccl-tests of an unknown collective",
        "run.log",
        (NCCL_HEADER + " 8 2 float sum -1 5.0 0.0 0.0 0 5.0 0.0 0.0 0\n").encode(),
        ": the log does not say which collective .*--collective all_reduce",
    ),
    _file("dcgmi without rows", "gpus.log", b"#Entity   TMPTR  POWER\nID  C  W\n", ": .* without a row of a GPU"),
    _file("dcgmi without clocks", "gpus.log", b"#Entity   GPUTL\nID\nGPU 0   12\n", ": neither clock, temperature nor"),
    _file("dcgmi with a short row", "gpus.log", b"#Entity   TMPTR  POWER\nGPU 0  34\n", ":2: 1 values"),
    _file("nvidia-smi alone", "gpus.csv", b"uuid, temperature.gpu\nGPU-1, 34\n", ": a log of GPU clocks"),
    _file("MLPerf log that is cut", "run.log", b':::MLLOG {"key": "ru', ":1: not JSON after :::MLLOG"),
    _file("Megatron log of dashes", "run.log", b" iteration 1/ 9 | elapsed time per iteration (ms): -- |\n", ":"),
]
