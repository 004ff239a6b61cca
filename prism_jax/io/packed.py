"""Text of a file that may be gzipped, told by its content, not by its name."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from ..errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"


def read_packed_text(file: Path, what: str) -> str:
    """The text of `file`.

    Args:
        what: what should be given instead, for messages: "a steps table in JSON or CSV".

    Raises:
        DataError: the file cannot be read, or is neither text nor a complete gzip file.
    """
    try:
        raw = file.read_bytes()
        return (gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw).decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{file}: neither text nor a complete gzip file. Give {what}.") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error}). Give {what}.") from None
