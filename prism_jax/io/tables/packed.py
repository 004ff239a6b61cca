"""Text of a file that may be gzipped, told by its content, not by its name."""

from __future__ import annotations

import gzip
import zlib
from io import BytesIO
from pathlib import Path

from ...errors import DataError
from ..traces.streams import GZIP

MAX_BYTES = 1 << 29  # of text; tables of a hundred thousand rows are a tenth of it


def read_packed_text(file: Path, what: str) -> str:
    """The text of `file`.

    Args:
        what: what should be given instead, for messages: "a steps table in JSON or CSV".

    Raises:
        DataError: the file cannot be read, is too large, or is neither text nor a complete gzip file.
    """
    try:
        raw = file.read_bytes()
        if raw.startswith(GZIP):
            raw = gzip.GzipFile(fileobj=BytesIO(raw)).read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise DataError(f"{file}: larger than {MAX_BYTES >> 20} MiB. Give {what}.")
        return raw.decode("utf-8-sig")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile, zlib.error):
        raise DataError(f"{file}: neither text nor a complete gzip file. Give {what}.") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error}). Give {what}.") from None
