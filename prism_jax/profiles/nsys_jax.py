"""Reads the archives of nsys-jax (JAX-Toolbox) as the events of every device.

An archive is a zip file of one process. Its table nvtx_gpu_proj_trace/trace.parquet holds the NVTX ranges of XLA: when each was
on the host, and from when to when what it launched ran on the GPU. Innermost ranges Thunk:#...hlo_op=...# are the operations,
ranges XlaModule:#...# the runs of programs. Threads called XlaLauncher:#global=...# (thread-metadata.parquet) drive one device
each; a process with none drives one from its main thread. Steps as `step_marks` finds them.

Only those two members are unpacked, in memory, up to their bound; parquet is read by columns in batches.

Source: JAX-Toolbox, nsys_jax, data loaders.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..core.errors import DataError
from ..core.read_file import open_input
from ..trace.columns import FileColumn
from .names import is_communication
from .rank_events import Event, ProfileHeader, RankEvents, enumerate_events
from .step_marks import MARKS, StepMarks, program_of, step_event

TRACE, THREADS = "nvtx_gpu_proj_trace/trace.parquet", "thread-metadata.parquet"
MAX_MEMBER = 2**28  # bytes, unpacked
MAX_MEMBERS = 100_000
MAX_ROWS = 8_000_000
MAX_NAME = 2_000
REMEDY = "Record fewer steps."
_COLUMNS = (
    FileColumn("Name", "name", "text"),
    FileColumn("Projected Start", "start", "float"),
    FileColumn("Projected Duration", "duration", "float"),
    FileColumn("Orig Start", "host_start", "float"),
    FileColumn("Orig Duration", "host_duration", "float"),
    FileColumn("TID", "thread", "int"),
    FileColumn("RangeId", "range", "float"),
    FileColumn("RangeStack", "stack", "text"),
)
_THUNK = re.compile(r"(?:TSL:)?Thunk:#(?:.*,)?hlo_op=([^#,]*)#?")
_LAUNCHER = re.compile(r"XlaLauncher:#global=(\d{1,7}),")
_US = 1e-3


class _Range(NamedTuple):
    """One row; nanoseconds as in the file."""

    name: str
    start_ns: float
    duration_ns: float
    host_start_ns: float
    host_duration_ns: float
    thread: int
    number: int
    stack: str


def is_nsys_jax(path: Path) -> bool:
    """Whether a file is a zip archive with the table of ranges."""
    try:
        with open_input(path) as file, zipfile.ZipFile(file) as archive:
            return TRACE in archive.NameToInfo
    except (
        zipfile.BadZipFile,
        ValueError,
        OSError,
        NotImplementedError,
    ):  # the last: a compression that zipfile has not
        return False


def nsys_jax_events(path: Path) -> Iterator[RankEvents]:
    """The devices of a file, each as a rank.

    Raises:
        DataError: cannot be read, damaged, larger than any such file, or without operations.
    """
    ranges = [
        one for one in _ranges(path, _member(path, TRACE)) if one.host_start_ns == one.host_start_ns
    ]  # NaN: of no range
    if not ranges:
        raise DataError(f"{path}: {TRACE} holds no ranges. Record with --trace cuda,nvtx.")
    operations = _innermost(ranges)
    if not operations:
        raise DataError(f"{path}: {TRACE} holds no operations (Thunk:#...hlo_op=...#). Record a program of XLA.")
    threads = sorted({one.thread for one, _ in operations})
    origin_ns = min(min(one.host_start_ns, one.start_ns) for one in ranges)
    devices = _devices(path, threads)
    for part, (_, mine) in enumerate(sorted(devices.items())):
        header = ProfileHeader(marks=MARKS)
        header.values["baseTimeNanoseconds"] = int(max(origin_ns, 0))
        marks = StepMarks(str(path))
        for one in ranges:
            if one.thread in mine:
                host = (one.host_start_ns - origin_ns) * _US, one.host_duration_ns * _US
                marks.add(one.name, *host, one.duration_ns * _US if program_of(one.name) else None)
        steps, note = marks.steps()
        header.notes += [note] * bool(note)
        own = [(one, name) for one, name in operations if one.thread in mine]
        yield RankEvents(header, enumerate_events(map(step_event, steps), _work(own, origin_ns)), part, len(devices))


def _work(operations: Iterable[tuple[_Range, str]], origin_ns: float) -> Iterator[tuple[Event, Event]]:
    """Every operation with its launch; collectives on a stream of their own."""
    for one, name in operations:
        link = {"correlation": one.number}
        host = {"ts": (one.host_start_ns - origin_ns) * _US, "dur": max(one.host_duration_ns, 0.0) * _US}
        yield {"cat": "cuda_runtime", "name": "launch", **host, "tid": one.thread}, link
        gpu = {"ts": (one.start_ns - origin_ns) * _US, "dur": max(one.duration_ns, 0.0) * _US}
        yield {"cat": "kernel", "name": name, **gpu, "tid": 0}, {"stream": int(is_communication(name)), **link}


def _innermost(ranges: list[_Range]) -> list[tuple[_Range, str]]:
    """Operations that contain no other, with their names."""
    found = [(one, match[1]) for one in ranges if (match := _THUNK.fullmatch(one.name))]
    around = {
        int(part) for one, _ in found for part in one.stack.split(":")[:-1] if part.isdecimal() and len(part) < 19
    }
    return [(one, name) for one, name in found if one.number not in around]


def _devices(path: Path, threads: list[int]) -> dict[int, set[int]]:
    """Device -> the threads that launch its operations."""
    if len(threads) == 1:
        return {0: set(threads)}
    launchers = _launchers(path)
    known = {thread: launchers[thread] for thread in threads if thread in launchers}
    if not known:
        return {0: set(threads)}
    devices: dict[int, set[int]] = defaultdict(set)
    for thread in threads:  # a main thread runs programs of one device: the first
        devices[known.get(thread, min(known.values()))].add(thread)
    return devices


def _launchers(path: Path) -> dict[int, int]:
    """Thread -> global number of the device that it drives."""
    try:
        raw = _member(path, THREADS)
    except KeyError:
        return {}
    found: dict[int, int] = {}
    for batch in _batches(path, raw, (FileColumn("Name", "name", "text"), FileColumn("TID", "thread", "int"))):
        for name, thread in zip(batch["Name"], batch["TID"], strict=True):
            if isinstance(name, str) and (match := _LAUNCHER.match(name)):
                found[int(thread)] = int(match[1])
    return found


def _member(path: Path, name: str) -> bytes:
    """A member of the archive, unpacked in memory.

    Raises:
        DataError: damaged, or more than its bound.
        KeyError: there is none.
    """
    try:
        with open_input(path) as file, zipfile.ZipFile(file) as archive:
            if len(archive.filelist) > MAX_MEMBERS:
                raise DataError(f"{path}: more than {MAX_MEMBERS:,} members")
            with archive.open(name) as member:
                raw = member.read(MAX_MEMBER + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError, NotImplementedError) as error:
        raise DataError(f"{path}: not a whole zip archive: {str(error)[:150]}. Copy or record it again.") from None
    if len(raw) > MAX_MEMBER:
        raise DataError(f"{path}: {name} unpacks to more than {MAX_MEMBER >> 20} MiB. {REMEDY}")
    return raw


def _batches(path: Path, raw: bytes, columns: tuple[FileColumn, ...]) -> Iterator[dict[str, list]]:
    from ..trace.parquet_columns import checked_batches  # pyarrow takes 0.2 s to import

    for batch in checked_batches(path, columns, MAX_ROWS, REMEDY, extra=True, file=io.BytesIO(raw)):
        try:
            found = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        except (ValueError, IndexError):  # text that is not UTF-8, codes without a text
            raise DataError(f"{path}: damaged text in a table of the archive. Copy or record it again.") from None
        yield found


def _ranges(path: Path, raw: bytes) -> Iterator[_Range]:
    for batch in _batches(path, raw, _COLUMNS):
        columns = [batch[column.name] for column in _COLUMNS]
        for name, start, duration, host_start, host_duration, thread, number, stack in zip(*columns, strict=True):
            if name is None or number is None or None in (start, duration, host_start, host_duration, thread):
                continue
            if not 0 <= number < 2**62 or not all(map(np.isfinite, (start, duration, host_start, host_duration))):
                continue
            times = float(start), float(duration), float(host_start), float(host_duration)
            yield _Range(name[:MAX_NAME], *times, int(thread), int(number), stack or "")
