"""Reads one file of the PyTorch profiler: its header and, one by one, its finished spans; in bounded memory.

The format is that of Chrome traces: {"distributedInfo": {...}, "baseTimeNanoseconds": n, "traceEvents": [{...}, ...]}, or the
list of events alone. An event is a flat object and its "args", again flat as far as it is used here; deeper content is skipped,
except the shapes of inputs, which become one text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import ijson

from ..core.errors import DataError
from ..tables.document import short
from ..tables.streams import chunks
from .rank_events import Event, ProfileHeader, RankEvents

MAX_BYTES = 2**34  # unpacked
MAX_EVENT_BYTES = 2**26  # of one event, or of all that stands before the first
MAX_DEPTH = 64
MAX_GROUPS = 10_000
DIGITS = (
    1_000  # numbers with three times as many are refused: ijson 3.6 crashes at 4,300, Python's limit for whole numbers
)
HEADER = ("distributedInfo", "prism")
SHAPES = "Input Dims"  # of a list of lists
MAX_SHAPES = 300  # characters of it


def kineto_events(path: Path) -> Iterable[RankEvents]:
    """The one rank of a file of the PyTorch profiler."""
    header = ProfileHeader()
    return (RankEvents(header, events(path, header)),)


def events(path: Path, header: ProfileHeader) -> Iterator[tuple[int, Event, Event]]:
    """Number (from 1), content and args of every finished span (ph "X"); fills `header` on the way.

    Raises:
        DataError: not readable, not JSON, cut off, no trace of the PyTorch profiler, or larger than any such trace; names the
            file and the number of events before the fault.
    """
    stream = _Stream(path)
    number = 0
    try:
        for number, event, args in _scan(stream, header):
            if event.get("ph") == "X":
                yield number, event, args
    except (ijson.JSONError, ValueError, ArithmeticError) as error:  # the last for exponents beyond all measure
        reason = short(str(error).replace("\\n", "\n").split("\n")[0].removeprefix("b'"))
        raise DataError(
            f"{path}: not JSON after event {number} (near byte {stream.n_bytes:,}): {reason}. "
            "Was the file cut off? Export the trace again."
        ) from None
    if not stream.is_trace:
        raise DataError(f'{path}: no "traceEvents": not a trace of the PyTorch profiler')


class _Stream:
    """Input stream of the JSON parser; counts, and stops at what no trace contains."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks = chunks(path)
        self.n_bytes = 0
        self.event_from = 0
        self.tail = b""
        self.is_trace = False

    def read(self, size: int = -1) -> bytes:
        """The next piece, of any size; empty at the end, or if none is asked for."""
        if size == 0:
            return b""
        piece = next(self.chunks, b"")
        self.n_bytes += len(piece)
        if self.n_bytes > MAX_BYTES:
            raise DataError(f"{self.path}: more than {MAX_BYTES >> 30} GiB unpacked. Record fewer steps.")
        if self.n_bytes - self.event_from > MAX_EVENT_BYTES:
            raise DataError(f"{self.path}: no event ends between bytes {self.event_from:,} and {self.n_bytes:,}")
        self.tail += piece
        if _has_long_number(self.tail):
            raise DataError(f"{self.path}: a number of more than {2 * DIGITS:,} digits before byte {self.n_bytes:,}")
        self.tail = self.tail[-3 * DIGITS :]
        return piece


def _has_long_number(text: bytes) -> bool:
    """Whether there are 3,000 digits in a row (always found), or 2,000 (perhaps)."""
    looked_at = text[::DIGITS]
    return any(
        looked_at[at : at + 3].isdigit() and text[at * DIGITS : (at + 2) * DIGITS].isdigit()
        for at in range(len(looked_at) - 2)
    )


def _scan(stream: _Stream, header: ProfileHeader) -> Iterator[tuple[int, Event, Event]]:  # noqa: C901  (millions of tokens, one pass)
    """Number, content and args of every event."""
    depth = number = 0
    key = area = inner = ""
    event: Event = {}
    args: Event = {}
    group: Event = {}
    for token, value in ijson.basic_parse(stream):  # whole numbers may exceed 64 bits; others are Decimal
        if depth == 0 and token == "start_array":  # the events alone, as Chrome writes them
            depth, area = 2, "traceEvents"
        elif token == "map_key":
            key = value
        elif token == "start_map" or token == "start_array":
            depth += 1
            if depth == 3:
                event, args = {}, {}
            elif depth == 4:
                inner, group = key, {}
            elif depth == 2:
                area = key
                stream.is_trace |= area == "traceEvents" and token == "start_array"
            elif depth > MAX_DEPTH:
                raise DataError(f"{stream.path}: nested more than {MAX_DEPTH} deep in event {number + 1}")
            elif depth > 4 and key == SHAPES and inner == "args":
                args[SHAPES] = _longer(args.get(SHAPES), "[")
        elif token == "end_map" or token == "end_array":
            depth -= 1
            if depth == 2 and area == "traceEvents":
                number += 1
                stream.event_from = stream.n_bytes
                stream.is_trace |= "ph" in event
                yield number, event, args
            elif depth == 3 and area == "distributedInfo":
                _add_group(stream.path, header, group)
            elif depth >= 4 and key == SHAPES and inner == "args":
                args[SHAPES] = _longer(args.get(SHAPES), "]")
        elif depth == 3:
            event[key] = value
        elif depth == 4 and area == "traceEvents":
            if inner == "args":
                args[key] = value
        elif depth > 4 and key == SHAPES and inner == "args" and area == "traceEvents":
            args[SHAPES] = _longer(args.get(SHAPES), str(value))
        elif depth == 4:
            group[key] = value
        elif depth == 1:
            header.values[key] = value
        elif depth == 2 and area in HEADER:
            header.values[f"{area}.{key}"] = value


def _longer(text: object, part: str) -> str:
    """A list as text, without what exceeds all use."""
    known = text if isinstance(text, str) else ""
    comma = "," if known[-1:] not in ("", "[") and part != "]" else ""
    return known if len(known) > MAX_SHAPES else f"{known}{comma}{part}"


def _add_group(path: Path, header: ProfileHeader, group: Event) -> None:
    name, size = group.get("pg_name"), group.get("pg_size")
    if isinstance(size, int) and isinstance(name, str):
        header.group_size[name] = size
    if len(header.group_size) > MAX_GROUPS:
        raise DataError(f"{path}: distributedInfo.pg_config: more than {MAX_GROUPS:,} process groups")
