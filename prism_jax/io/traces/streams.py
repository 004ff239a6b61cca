"""Bytes and lines of files that may be packed with gzip, in bounded memory however long the lines and however small the file."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from ..._core.input_file import GZIP, explained, open_input
from ...errors import DataError

CHUNK_BYTES = 2**18
MAX_LINE_BYTES = 2**20
MAX_RATIO = 400  # of unpacked to packed size; text packs 5 to 100 times, a bomb 1,000 times
SPARE_BYTES = 2**26


def head(path: Path, size: int = 2**16) -> bytes:
    """The first bytes of the content, unpacked.

    Raises:
        DataError: cannot be read, or begins as gzip and is damaged.
    """
    with explained(path), open_input(path) as file:
        raw = file.read(size)
        return zlib.decompressobj(wbits=31).decompress(raw, size) if raw.startswith(GZIP) else raw


def chunks(path: Path) -> Iterator[bytes]:
    """The content, unpacked.

    Raises:
        DataError: cannot be read; gzip that is truncated, damaged or unpacks to something huge.
    """
    with explained(path), open_input(path) as file:
        packed = file.read(len(GZIP)) == GZIP
        limit = max(SPARE_BYTES, MAX_RATIO * os.fstat(file.fileno()).st_size)
        file.seek(0)
        stream = gzip.GzipFile(fileobj=file) if packed else file
        n_bytes = 0
        while chunk := stream.read(CHUNK_BYTES):
            n_bytes += len(chunk)
            if packed and n_bytes > limit:
                raise DataError(
                    f"{path}: unpacks to more than {MAX_RATIO} times its size, as no trace does. Unpack it."
                )
            yield chunk


def lines(path: Path, *, cut: bool) -> Iterator[tuple[int, bytes]]:
    """Line number (from 1) and content of every line; what a progress bar wrote over itself counts as pieces of one line.

    Args:
        cut: whether the rest of a line of more than 1 MiB is dropped, instead of being an error.
    """
    number, rest, skipping = 1, b"", False
    for chunk in chunks(path):
        *parts, rest = (rest + chunk).split(b"\n")
        for part in parts:
            if not skipping:
                yield from _pieces(path, number, part, cut)
            skipping = False
            number += 1
        if skipping:
            rest = b""
        elif b"\r" in rest:
            done, _, rest = rest.rpartition(b"\r")
            yield from _pieces(path, number, done, cut)
        if len(rest) > MAX_LINE_BYTES:
            yield from _pieces(path, number, rest, cut)
            rest, skipping = b"", True
    if rest and not skipping:
        yield from _pieces(path, number, rest, cut)


def _pieces(path: Path, number: int, line: bytes, cut: bool) -> Iterator[tuple[int, bytes]]:
    for piece in line.split(b"\r") if b"\r" in line else (line,):
        if len(piece) > MAX_LINE_BYTES and not cut:
            raise DataError(f"{path}:{number}: a line of more than {MAX_LINE_BYTES:,} bytes")
        yield number, piece[:MAX_LINE_BYTES]
