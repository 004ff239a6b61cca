"""Text of a table that may be gzipped, told by its content, not by its name."""

from __future__ import annotations

from pathlib import Path

from ..._core.input_file import read_text

MAX_BYTES = 1 << 26  # of text, unpacked; a hundred thousand rows of the longest tables have 60 MB


def read_packed_text(file: Path, what: str) -> str:
    """The text of `file`.

    Args:
        what: what should be given instead, for messages: "a steps table in JSON or CSV".

    Raises:
        DataError: no regular file, it cannot be read, is too large, or is neither text nor a complete gzip file.
    """
    return read_text(file, MAX_BYTES, f"Give {what}.", unpack=True)
