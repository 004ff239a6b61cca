"""Event files of TensorBoard (events.out.tfevents.*): scalars, read without TensorFlow.

A file is a row of records: length (8 bytes), checksum (4), an Event in protobuf, checksum (4). Of an Event its wall_time (1,
double), step (2) and summary (5) matter; of a summary its values (1): tag (1), simple_value (2, float) or tensor (8) with one
number. What is longer than 1 MiB (a picture, a graph) is passed over. A running job's last record may be cut.

Source: tensorflow/core/util/event.proto, framework/summary.proto, framework/tensor.proto; tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ...core.errors import DataError
from ...core.read_file import open_input
from ...profiles.protobuf import BYTES, EIGHT, FOUR, VARINT, fields, signed
from ...tables.streams import PACKED
from ...trace.step_log import NOTHING_STATED, FileStart, Stated, StepLog, TraceFormat
from .quantities import NOT_TRAINING, QuantityKind, is_mean, is_time, kind_of, meaning, rank_of
from .scalars import ScalarNames, ScalarRow, read_scalars, stated_unit

MAX_RECORD_BYTES = 2**20
MOST_TAGS = 100_000
FIRST = b"brain.Event:"  # the version that every file begins with
LONGEST_TAG = 300
FLOAT, DOUBLE = 1, 2  # types of tensors


class Scalar(NamedTuple):
    """One value of one tag."""

    wall_time_s: float
    step: int
    tag: str
    value: float


def read_event_file(path: Path, stated: Stated = NOTHING_STATED) -> StepLog:
    """The step times in an event file: values of a tag that is a step time; without one, the clock of the tag with most values.

    Args:
        stated: the unit of a step time whose tag says none.

    Raises:
        DataError: cannot be read, damaged, or without scalars; names the file and the record.
    """
    counts: Counter[str] = Counter()
    for _, scalar in scalars(path):
        counts[scalar.tag] += 1
        if len(counts) > MOST_TAGS:
            raise DataError(f"{path}: more than {MOST_TAGS:,} tags. Export the tag of the step time as CSV.")
    if not counts:
        raise DataError(f"{path}: an event file of TensorBoard without scalars. Name the one that holds them.")
    tag, is_clock = _tag(path, counts)
    rows = (
        ScalarRow(f"{path}: record {number}", {"step": one.step, "value": one.value, "wall": one.wall_time_s})
        for number, one in scalars(path)
        if one.tag == tag
    )
    work = 1.0 if not is_clock and kind_of(tag) == QuantityKind.STEP_RATE else None
    own_unit_s = None if is_clock else (meaning(tag).unit_s if work else stated_unit(tag, stated.unit_s, str(path)))
    mean = not is_clock and is_mean(tag)
    chosen = ScalarNames("step", None if is_clock else "value", own_unit_s, "wall", 1.0, mean, work=work)
    return read_scalars(path, chosen, rows, f"TensorBoard events, {'times of' if is_clock else 'values of'} {tag}")


def _tag(path: Path, counts: Counter[str]) -> tuple[str, bool]:
    """The tag to read, and whether only its clock says something."""
    times = [tag for tag in counts if is_time(tag, beside_steps=False)]
    times = [tag for tag in times if not NOT_TRAINING.search(tag)] or times
    times = (
        times or [tag for tag in counts if kind_of(tag) == QuantityKind.STEP_RATE and not NOT_TRAINING.search(tag)][:1]
    )
    if times:
        rank = {tag: rank_of(tag) for tag in times}
        first = [tag for tag in times if rank[tag] == min(rank.values())]
        if len(first) > 1:
            raise DataError(
                f"{path}: several tags could be the step time: {', '.join(first[:5])}. Export one as CSV and name that."
            )
        return first[0], False
    training = [tag for tag in counts if not NOT_TRAINING.search(tag)] or list(counts)
    return max(training, key=lambda tag: counts[tag]), True


def scalars(path: Path) -> Iterator[tuple[int, Scalar]]:
    """Number of the record (from 1) and every scalar in the file.

    Raises:
        DataError: a record is damaged.
    """
    for number, event in _records(path):
        try:
            yield from ((number, one) for one in _scalars(event))
        except (IndexError, ValueError, struct.error):
            raise DataError(f"{path}: record {number} is damaged. Copy the file again.") from None


def _records(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with open_input(path) as file:
            size = os.fstat(file.fileno()).st_size
            number = 0
            while (head := file.read(12)) and len(head) == 12:
                number += 1
                length = int.from_bytes(head[:8], "little")
                if length > size:
                    raise DataError(f"{path}: record {number} is damaged: {length:,} bytes in a file of {size:,}.")
                event = _content(file, length)
                if event is not None:
                    yield number, event
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def _content(file: BinaryIO, length: int) -> bytes | None:
    """The record that follows; None if it is passed over or cut."""
    if length > MAX_RECORD_BYTES:
        file.seek(length + 4, 1)
        return None
    content = file.read(length)
    return content if len(content) == length and len(file.read(4)) == 4 else None


def _scalars(event: bytes) -> Iterator[Scalar]:
    wall_time_s, step = 0.0, 0
    summaries: list[tuple[int, int]] = []
    for number, kind, start, end in fields(event, 0, len(event)):
        if (number, kind) == (1, EIGHT):
            wall_time_s = struct.unpack("<d", event[start:end])[0]
        elif (number, kind) == (2, VARINT):
            step = signed(start)
        elif (number, kind) == (5, BYTES):
            summaries.append((start, end))
    for summary in summaries:
        for number, kind, start, end in fields(event, *summary):
            if (number, kind) == (1, BYTES):
                tag, value = _value(event, start, end)
                if value is not None:
                    yield Scalar(wall_time_s, step, tag, value)


def _value(event: bytes, start: int, end: int) -> tuple[str, float | None]:
    tag, value = "", None
    for number, kind, at, to in fields(event, start, end):
        if (number, kind) == (1, BYTES):
            tag = event[at : min(to, at + LONGEST_TAG)].decode("utf-8", "replace")
        elif (number, kind) == (2, FOUR):
            value = struct.unpack("<f", event[at:to])[0]
        elif (number, kind) == (8, BYTES):
            value = _tensor(event, at, to)
    return tag, value


def _tensor(event: bytes, start: int, end: int) -> float | None:
    """The only number of a tensor of floats; None for any other."""
    # bytes, format, and the fields tensor_content and float_val or double_val
    of_type = {FLOAT: (4, "<f", (4, 5)), DOUBLE: (8, "<d", (4, 6))}
    found = [*fields(event, start, end)]
    kind_of = next((at for number, kind, at, _ in found if (number, kind) == (1, VARINT)), 0)
    if kind_of not in of_type:
        return None
    size, written, numbers = of_type[kind_of]
    parts = [event[at:to] for number, _, at, to in found if number in numbers and to - at == size]
    return struct.unpack(written, parts[-1])[0] if parts else None


def _recognises(begins: FileStart) -> bool:
    """Whether the first record is the version of an event file."""
    start = begins.start
    if any(start.startswith(magic) for magic in PACKED) or len(start) < 24:
        return False
    length = int.from_bytes(start[:8], "little")
    return 0 < length < 2**16 and FIRST in start[12 : 12 + length]


EVENT_FILE = TraceFormat(
    "TensorBoard events",
    "event files of TensorBoard (events.out.tfevents.*)",
    _recognises,
    lambda files: read_event_file(files[0]),
    read_stated=lambda files, stated: read_event_file(files[0], stated),
)
