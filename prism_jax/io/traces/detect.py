"""Which format a trace file has: by its content, and by its ending only where the content leaves it open."""

from __future__ import annotations

from pathlib import Path

from ..._core.input_file import check_input
from ...errors import DataError
from .format import FileStart, TraceFormat
from .formats import SHIPPED, added_formats, what_is_read
from .logs.scalars.event_file import EVENT_FILE
from .refuse import PARQUET, SAMPLE_BYTES, ZSTD, refuse_binary, refuse_packed
from .streams import head

_CHAKRA_ENDINGS = (".et", ".chakra")


def detect(path: Path) -> TraceFormat:
    """The format of a regular file; formats of callers come before those of the package.

    Raises:
        DataError: cannot be read, empty, packed in a way that is not read, or of no known format.
    """
    check_input(path)
    begins = FileStart(path, head(path))
    if not begins.start:
        raise DataError(f"{path}: the file is empty. Record the trace again.")
    for known in added_formats():
        if known.recognises(begins):
            return known
    _refuse(begins)
    return next(known for known in reversed(SHIPPED) if known.recognises(begins))  # the last takes any text


def _refuse(begins: FileStart) -> None:
    """Files that no reader of the package reads."""
    path, start = begins.path, begins.start
    refuse_packed(path, start, {ZSTD: "zstd"})
    if begins.name.endswith(_CHAKRA_ENDINGS):
        raise DataError(
            f"{path}: a Chakra execution trace. Those are not read; {what_is_read()} are. Record with the profiler."
        )
    if start.startswith(b"SQLite format 3\0"):
        raise DataError(f"{path}: an SQLite database (Nsight Systems?). Those are not read; {what_is_read()} are.")
    if not start.startswith(PARQUET) and not EVENT_FILE.recognises(begins):
        refuse_binary(path, start[:SAMPLE_BYTES], what_is_read())
