"""The bytes of a file as one stream, unpacked on the way (gzip, zstd), with a limit on what comes out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from prism_jax._core.input_file import open_input
from prism_jax.errors import DataError
from prism_jax.io.traces.refuse import ZSTD
from prism_jax.io.traces.streams import CHUNK_BYTES, chunks

MAX_BYTES = 8 * 2**30  # unpacked


class Unpacked(io.RawIOBase):
    """A stream of a file's content, read-only.

    `failure` is the error that ended it, for callers whose parser hides it.
    """

    def __init__(self, path: Path) -> None:
        self.failure: DataError | None = None
        self._chunks = _limited(path)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always true: the stream is for reading only."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fills `buffer` with unpacked bytes and returns how many; 0 at the end.

        Raises:
            DataError: the file is damaged or unpacks to too much.
        """
        target = memoryview(buffer).cast("B")  # pyright: ignore[reportArgumentType]
        while not self._rest:
            try:
                piece = next(self._chunks, None)
            except DataError as error:
                self.failure = error
                raise
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        n = min(len(target), len(self._rest))
        target[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n


def first_bytes(path: Path, size: int = 2**16) -> bytes:
    """The beginning of the content.

    Raises:
        DataError: cannot be read, or packed and damaged.
    """
    with io.BufferedReader(Unpacked(path), CHUNK_BYTES) as stream:
        return stream.read(size)


def is_zstd(path: Path) -> bool:
    """Whether the file is packed with zstd."""
    with open_input(path) as file:
        return file.read(len(ZSTD)) == ZSTD


def _limited(path: Path) -> Iterator[bytes]:
    n_bytes = 0
    for piece in _zstd_chunks(path) if is_zstd(path) else chunks(path):
        n_bytes += len(piece)
        if n_bytes > MAX_BYTES:
            raise DataError(f"{path}: more than {MAX_BYTES / 2**30:g} GiB, unpacked. Split it, or leave columns out.")
        yield piece


def _zstd_chunks(path: Path) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with pa.input_stream(str(path), compression="zstd") as stream:
            while piece := stream.read(CHUNK_BYTES):
                yield piece
    except (OSError, pa.ArrowException):
        raise DataError(f"{path}: a damaged zstd file. Copy it again.") from None
