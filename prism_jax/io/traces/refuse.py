"""Files that are told by their first bytes and that no reader of traces or measurements reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..._core.input_file import open_input
from ...errors import DataError

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
