"""Step times from MLPerf Training logs: lines that hold `:::MLLOG {json}`, whatever stands before it.

Step times that the framework itself reports (`tracked_stats` with train_step_time or step_time, in s) are taken where there are
any. Otherwise they follow from the clock: time between successive entries of one key over the steps between them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from ....errors import DataError
from ....recorded.trace.step_log import StepLog
from ...job.document import short
from ..format import FileStart, TraceFormat
from ..streams import chunks, lines
from .mllog_steps import COUNTS, Event, Steps, clocked_steps, is_pause, reported_steps

MARKER = b":::MLLOG"
MARKER_BYTES = 2**26  # how far the marker is looked for
MAX_EVENTS = 1_000_000  # with a number of steps or samples
MAX_MS = 1e15
_DECODER = json.JSONDecoder()


def read_mllog(path: Path) -> StepLog:
    """The step times of an MLPerf log, packed with gzip or not.

    Raises:
        DataError: cannot be read, an entry is not JSON or lacks its key or time, or no step time follows; names file:line.
    """
    events: list[Event] = []
    batch: float | None = None
    name = path.name.removesuffix(".gz").rsplit(".", 1)[0]
    for place, record in _records(path):
        event = _event(record, place)
        if event.key == "global_batch_size" and _number(record.get("value")):
            batch = float(record["value"])
        if event.key == "submission_benchmark" and isinstance(record.get("value"), str):
            name = record["value"][:100] if record["value"].isprintable() else name
        if event.counts or event.value or is_pause(event):
            events.append(event)
        if len(events) > MAX_EVENTS:
            raise DataError(f"{path}: more than {MAX_EVENTS:,} entries with step numbers. Cut the log.")
    return _step_log(path, name, reported_steps(events, batch) or clocked_steps(events, batch), events, batch)


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and content of every entry; several may share a line."""
    for number, line in lines(path, cut=True):
        if MARKER not in line:
            continue
        place = f"{path}:{number}"
        text = line.decode("utf-8", "replace")
        marker, end = MARKER.decode(), 0
        while (start := text.find(marker, end)) >= 0:
            begin = text.find("{", start)
            if begin < 0:
                raise DataError(f"{place}: no {{ after {marker}. Remove the line.")
            try:
                record, end = _DECODER.raw_decode(text, begin)
            except RecursionError:
                raise DataError(f"{place}: not JSON after {marker}: nested too deeply. Remove the line.") from None
            except ValueError as error:
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number of thousands of digits"
                raise DataError(f"{place}: not JSON after {marker}: {reason}. Remove the line.") from None
            yield place, record


def _event(record: dict[str, Any], place: str) -> Event:
    key, time_ms = record.get("key"), record.get("time_ms")
    if not isinstance(key, str):
        raise DataError(f"{place} key: {short(key)} is not text")
    if not _number(time_ms) or not 0 <= time_ms <= MAX_MS:
        raise DataError(f"{place} time_ms: {short(time_ms)} is not a time in ms")
    metadata, value = record.get("metadata"), record.get("value")
    counts = {name: metadata[name] for name in COUNTS if name in metadata} if isinstance(metadata, dict) else {}
    for name, count in counts.items():
        if not _number(count) or not 0 <= count <= 2**53:
            raise DataError(f"{place} {name}: {short(count)} is not a number of steps or samples")
    values = value if key == "tracked_stats" and isinstance(value, dict) else {}
    return Event(place, key, float(time_ms), values, {name: float(count) for name, count in counts.items()})


def _number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= 2**63 if isinstance(value, int) else math.isfinite(value)


def _step_log(path: Path, name: str, steps: Steps | None, events: list[Event], batch: float | None) -> StepLog:
    if steps is None:
        lacks = not batch and any("samples_count" in event.counts for event in events)
        hint = " There is no global_batch_size either, without which samples_count says nothing." if lacks else ""
        raise DataError(
            f"{path}: no step times: neither train_step_time in tracked_stats nor successive entries with {', '.join(COUNTS)} "
            f"between which training went on.{hint}"
        )
    return StepLog(
        source=str(path),
        name=name,
        step=np.array(steps.step, dtype=np.int64),
        step_s=np.array(steps.seconds, dtype=np.float64),
        n_steps=np.array(steps.n_steps, dtype=np.int32),
        notes=("MLPerf log", steps.note),
    )


def _has_marker(begins: FileStart) -> bool:
    n_bytes, end = 0, b""
    for chunk in chunks(begins.path):
        if MARKER in end + chunk:
            return True
        end = chunk[-len(MARKER) :]
        n_bytes += len(chunk)
        if n_bytes > MARKER_BYTES:
            return False
    return False


MLLOG = TraceFormat("MLLOG", "MLPerf logs (:::MLLOG)", _has_marker, lambda files: read_mllog(files[0]))
