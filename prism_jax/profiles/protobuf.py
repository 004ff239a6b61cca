"""Reads messages of protocol buffers without their description: fields by number, in memory bounded by the file.

Source: Protocol Buffers, encoding: a field is a key (number << 3 | kind) and a value: a varint (kind 0), 8 bytes (1), a length
and as many bytes (2), or 4 bytes (5).
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_SIZES = {EIGHT: 8, FOUR: 4}


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number at `at`, and where it ends.

    Raises:
        ValueError, IndexError: no number of 64 bits ends there.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value & 0xFFFFFFFFFFFFFFFF, at + 1


def signed(value: int) -> int:
    """`value` as a signed number of 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number of every field of the message between `start` and `end`, its kind, and its content.

    The content of a varint is (value, 0), of all else the place of its bytes: (from, to).

    Raises:
        ValueError, IndexError: no message, or one that ends too early.
    """
    at = start
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            if at > end:
                raise ValueError("a field ends after its message")
            yield key >> 3, kind, value, 0
            continue
        size = _SIZES.get(kind, -1)
        if kind == BYTES:
            size, at = varint(data, at)
        if size < 0 or at + size > end:
            raise ValueError("a field ends after its message")
        yield key >> 3, kind, at, at + size
        at += size
