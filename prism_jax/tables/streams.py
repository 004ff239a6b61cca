"""Opens files that may be packed with gzip, in bounded memory however long the lines, and tells files by their first bytes.

The jobs and traces shipped with prism-jax lie under examples/ in a checkout, inside the package in an installed wheel.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..core.errors import DataError
from ..core.read_file import CHUNK_BYTES, GZIP, explained, open_input, unpacked

_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "_examples", _PACKAGE.parent / "examples")


def example_files() -> dict[str, Path]:
    """Name without ending -> job file, sorted by name."""
    return {path.stem: path for path in _shipped() if path.suffix in (".yaml", ".toml")}


def example_traces() -> dict[str, Path]:
    """Name -> folder of a recorded trace, sorted by name."""
    return {path.name: path for path in _shipped() if path.is_dir() and not path.name.startswith("_")}


def _shipped() -> list[Path]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    return sorted(folder.iterdir()) if folder else []


PARQUET = b"PAR1"
ZSTD = b"\x28\xb5\x2f\xfd"
PACKED: Mapping[bytes, str] = {
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ\x00": "xz",
    b"BZh": "bzip2",
    b"\x04\x22\x4d\x18": "lz4",
}
SAMPLE_BYTES = 4096  # by which binary files are told from text


def refuse_packed(path: Path, start: bytes, more: Mapping[bytes, str] | None = None) -> None:
    """Whether a file must be unpacked first.

    Args:
        start: first bytes of the content.
        more: further packers that the caller does not read: magic bytes -> name.

    Raises:
        DataError: it must.
    """
    for magic, name in {**PACKED, **(more or {})}.items():
        if start.startswith(magic):
            raise DataError(f"{path}: packed with {name}. Unpack it, or pack it with gzip.")
    if start.startswith(PARQUET):
        with open_input(path) as file:
            if file.read(len(PARQUET)) != PARQUET:
                raise DataError(f"{path}: parquet inside a packed file. Unpack it.")


def refuse_binary(path: Path, start: bytes, read: str) -> None:
    """Whether a file is text in UTF-8.

    Args:
        start: first bytes of the content; a NUL anywhere in them tells a binary file.
        read: what is read instead, for the message.

    Raises:
        DataError: it is not.
    """
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: UTF-16 text. Save it as UTF-8.")
    text = start[:SAMPLE_BYTES].decode("utf-8", "replace")
    if b"\0" in start or 10 * text.count("\ufffd") > len(start[:SAMPLE_BYTES]):
        raise DataError(f"{path}: a binary file of no known format. Supported: {read}.")


MAX_LINE_BYTES = 2**20


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
        file.seek(0)
        if packed:
            yield from unpacked(path, file)
            return
        while chunk := file.read(CHUNK_BYTES):
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
