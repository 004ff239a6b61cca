"""Which format a trace file has: by its content, and by its ending only where the content leaves it open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from ...errors import DataError
from . import plain_table
from .logs.mllog import MARKER
from .streams import GZIP, check_file, chunks, head

Format = Literal["parquet", "csv", "kineto", "mllog", "text_log"]
READ = (
    "Kineto (PyTorch profiler) JSON, the straggler-analysis parquet, plain tables of ops (CSV, parquet), MLPerf logs (:::MLLOG) "
    "and text logs of Megatron-LM, NeMo and nanotron"
)
MARKER_BYTES = 2**26  # how far an MLPerf marker is looked for
PACKED = {
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
}
_JSON = re.compile(r"\{\s*(\"|\}|$)|\[\s*([{\]\"]|$)")
_EXECUTION_TRACE = re.compile(r"\"schema\"\s*:\s*\"[0-9.]+(-chakra[0-9.]*)?\"")
_CHAKRA_ENDINGS = (".et", ".chakra")


def detect(path: Path) -> Format:
    """The format of a regular file.

    Raises:
        DataError: cannot be read, empty, packed in a way that is not read, or of no known format.
    """
    check_file(path)
    start = head(path)
    if not start:
        raise DataError(f"{path}: the file is empty. Record the trace again.")
    _refuse(path, start)
    if start.startswith(b"PAR1"):
        return "parquet"
    ending = path.name.lower().removesuffix(".gz")
    if ending.endswith(".parquet"):
        raise DataError(f"{path}: not a parquet file: it does not begin with PAR1. Export it again.")
    text = start.decode("utf-8", "replace").lstrip("\ufeff \t\r\n\v\f")
    if _JSON.match(text):
        return _json(path, text)
    if ending.endswith(".json"):
        raise DataError(f"{path}: not a Kineto trace, which is one JSON object: it begins with {text[:20]!r}")
    if ending.endswith(".csv") or _is_table(text):
        return "csv"
    return "mllog" if _has_marker(path) else "text_log"


def _refuse(path: Path, start: bytes) -> None:
    """Binary files that no reader here reads."""
    for magic, name in PACKED.items():
        if start.startswith(magic):
            raise DataError(f"{path}: packed with {name}. Unpack it, or pack it with gzip.")
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    if packed and start.startswith(b"PAR1"):
        raise DataError(f"{path}: parquet inside gzip. Unpack it.")
    if path.name.lower().removesuffix(".gz").endswith(_CHAKRA_ENDINGS):
        raise DataError(f"{path}: a Chakra execution trace. Those are not read; {READ} are. Record with the profiler.")
    if start.startswith(b"SQLite format 3\0"):
        raise DataError(f"{path}: an SQLite database (Nsight Systems?). Those are not read; {READ} are.")
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: UTF-16 text. Save it as UTF-8.")
    if not start.startswith(b"PAR1") and _is_binary(start[:4096]):
        raise DataError(f"{path}: a binary file of no known format. Read are {READ}.")


def _is_binary(start: bytes) -> bool:
    if b"\0" in start:
        return True
    return 10 * start.decode("utf-8", "replace").count("\ufffd") > len(start)


def _json(path: Path, text: str) -> Format:
    if _EXECUTION_TRACE.search(text[:4096]) and "traceEvents" not in text:
        raise DataError(
            f"{path}: a PyTorch or Chakra execution trace, which holds no times that all ranks share. Those are not read; "
            f"{READ} are. Record with the profiler."
        )
    return "kineto"


def _is_table(text: str) -> bool:
    """Whether the first line is a list of column names."""
    names = {name.strip().strip('"') for name in text.partition("\n")[0].split(",")}
    return len(names & {column.name for column in plain_table.COLUMNS}) >= 2


def _has_marker(path: Path) -> bool:
    n_bytes, end = 0, b""
    for chunk in chunks(path):
        if MARKER in end + chunk:
            return True
        end = chunk[-len(MARKER) :]
        n_bytes += len(chunk)
        if n_bytes > MARKER_BYTES:
            return False
    return False
