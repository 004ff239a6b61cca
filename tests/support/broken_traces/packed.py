"""Packed and binary files, and names that are no file."""

import gzip
import os
from pathlib import Path

from .kinds import GOOD_ROW, HEADER, broken, bytes_file, written

bytes_file("empty file", "trace.json", b"", ": the file is empty")
bytes_file("binary garbage", "trace.dat", bytes(range(256)) * 40, ": a binary file of no known format")
bytes_file("NUL bytes", "trace.log", b"\0" * 5000, ": a binary file")
bytes_file("unicode garbage", "trace.log", "☃ñ漢字🦆\n".encode() * 300, ": no line with a step time")
bytes_file("random high bytes", "trace.log", bytes(range(128, 256)) * 40, ": a binary file")
bytes_file("zip", "trace.zip", b"PK\x03\x04" + b"x" * 50, ": packed with zip")
bytes_file("zstd", "trace.json.zst", b"\x28\xb5\x2f\xfd" + b"x" * 50, ".*packed with zstd")
bytes_file(
    "gzip that is cut",
    "ops.csv.gz",
    gzip.compress((HEADER + "\n" + GOOD_ROW * 9999).encode())[:-90],
    ".*ends too early",
)
bytes_file("gzip that is damaged", "ops.csv.gz", b"\x1f\x8b\x08\x00" + b"\xff" * 60, ": a damaged gzip file")
bytes_file("parquet inside gzip", "t.parquet.gz", gzip.compress(b"PAR1PAR1"), ".*parquet inside a packed file")
bytes_file("Chakra execution trace", "chakra.0.et", b"\x0a\x05\x0a\x03abc" * 9, ": a Chakra execution trace")
bytes_file(
    "PyTorch execution trace",
    "et.json",
    b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}',
    ".*execution trace",
)
bytes_file(
    "Nsight database", "report.sqlite", b"SQLite format 3\0" + b"\1" * 99, ".*not a whole SQLite export.*nsys export"
)
broken("gzip bomb", r"bomb\.log\.gz: unpacks to more than 100 times")(
    lambda folder: written(folder / "bomb.log.gz", gzip.compress(b"a" * 100_000_000))
)
broken("gzip bomb of one CSV line", r"bomb\.csv\.gz: unpacks to more than 100 times")(
    lambda folder: written(folder / "bomb.csv.gz", gzip.compress(HEADER.encode() + b"\n" + b"1" * 100_000_000))
)
broken("nothing there", r"absent\.json: cannot be read: No such file")(lambda folder: folder / "absent.json")
broken("pattern that matches nothing", r"rank\*\.json: no file matches")(lambda folder: folder / "rank*.json")
broken("name that is too long", r"aaaa.*(cannot be read|not a usable).*too long")(lambda folder: folder / ("a" * 5000))
broken("name with a NUL", r"not a usable file name")(lambda folder: folder / "a\0b")


@broken("empty folder", r"empty: a folder without Kineto traces .* It is empty")
def _(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@broken("folder of other formats", r"run: a folder without Kineto traces .* ops\.csv: name one")
def _(folder: Path) -> Path:
    (folder / "run").mkdir()
    written(folder / "run" / "ops.csv", HEADER.encode())
    return folder / "run"


@broken("pattern that matches two tables", r"a\.csv: not a Kineto trace, and only those may be several")
def _(folder: Path) -> Path:
    for name in ("a.csv", "b.csv"):
        written(folder / name, f"{HEADER}\n{GOOD_ROW}".encode())
    return folder / "*.csv"


@broken("pipe", r"pipe: not a regular file")
def _(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


broken("device without end", r"zero: not a regular file")(lambda folder: Path("/dev/zero"))
