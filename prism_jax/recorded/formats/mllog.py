"""Reads step times from MLPerf Training logs: lines that hold `:::MLLOG {json}`, whatever stands before it.

Step times that the framework itself reports (`tracked_stats` with train_step_time or step_time, in s) are taken where there are
any. Otherwise they follow from the clock: time between successive entries of one key over the steps between them.

Entries count progress as `step_num` (steps), `samples_count` (samples) or `step`, which is steps in some logs and samples in
others. Some count from the start of the run, some the samples of one block. What rises from entry to entry counts from the start.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from ...core.errors import DataError
from ...tables.document import short
from ...tables.streams import chunks, lines
from ...trace.step_log import FileStart, StepLog, TraceFormat

COUNTS = ("step_num", "samples_count", "step")
REPORTED = ("train_step_time", "step_time")  # s
MAX_STEPS = 2**31 - 1


class LogEntry(NamedTuple):
    """One entry.

    Attributes:
        place: file:line.
        value: numbers of a `tracked_stats` entry.
        counts: those of `COUNTS` that it has.
    """

    place: str
    key: str
    time_ms: float
    value: dict[str, Any]
    counts: dict[str, float]


class LoggedSteps(NamedTuple):
    """Entries of a log: last step, seconds per step and number of steps of each; and where they come from."""

    step: list[int]
    seconds: list[float]
    n_steps: list[int]
    note: str


def is_pause(event: LogEntry) -> bool:
    """Whether no training goes on around the entry: evaluation, start or end of the run."""
    return event.key.startswith(("eval", "run_st", "init_st"))


def reported_steps(events: Sequence[LogEntry], batch: float | None) -> LoggedSteps | None:
    """Step times that the framework reports. Entries with a loss time one step; others are means since the one before."""
    kinds: dict[frozenset[str], list[LogEntry]] = defaultdict(list)
    for event in events:
        if any(name in event.value for name in REPORTED):
            kinds[frozenset(event.value)].append(event)
    if not kinds:
        return None
    kind = max(kinds, key=lambda kind: len(kinds[kind]))
    found = kinds[kind]
    field = next(name for name in REPORTED if name in kind)
    seconds = [_seconds(event, field) for event in found]
    step = _progress(found, events, batch)
    single = any("loss" in name for name in kind)
    if single:
        n_steps = [1] * len(found)
    elif step is not None:
        n_steps = _since(step)
    else:
        n_steps = _lengths(found, batch)
    numbers = [round(value) for value in step] if step is not None else list(accumulate(n_steps))
    note = f"{field} as reported, " + ("of the step of the entry" if single else "mean since the entry before")
    return LoggedSteps(numbers, seconds, n_steps, note)


def clocked_steps(events: Sequence[LogEntry], batch: float | None) -> LoggedSteps | None:
    """Time between successive entries of one key over the steps between them, where no evaluation came in between."""
    keys: dict[str, list[tuple[int, LogEntry]]] = defaultdict(list)  # with the number of pauses before the event
    n_pauses = 0
    for event in events:
        if is_pause(event):
            n_pauses += 1
        elif event.counts:
            key = "block" if event.key in ("block_start", "block_stop") else event.key
            last = keys[key][-1][1] if keys[key] else None
            if last is None or (last.key, last.counts) != (event.key, event.counts):  # else another rank says it again
                keys[key].append((n_pauses, event))
    by_key = [_clocked(key, found, events, batch) for key, found in keys.items()]
    return max((steps for steps in by_key if steps.step), key=lambda steps: len(steps.step), default=None)


def _clocked(
    key: str, found: list[tuple[int, LogEntry]], events: Sequence[LogEntry], batch: float | None
) -> LoggedSteps:
    steps = LoggedSteps([], [], [], f"wall clock between successive {key} entries, evaluations left out")
    progress = _progress([event for _, event in found], events, batch)
    if progress is None:
        return steps
    for ((pauses, before), begins), ((pauses_now, event), ends) in pairwise(zip(found, progress, strict=True)):
        n_exact = ends - begins
        n = round(n_exact)
        if pauses != pauses_now or not 1 <= n <= MAX_STEPS or abs(n - n_exact) > 0.1 or event.time_ms == before.time_ms:
            continue
        if event.time_ms < before.time_ms:
            raise DataError(
                f"{event.place} time_ms: the clock goes back, from {before.time_ms:.0f} to {event.time_ms:.0f}"
            )
        steps.step.append(round(ends))
        steps.seconds.append((event.time_ms - before.time_ms) / 1e3 / n)
        steps.n_steps.append(n)
    return steps


def _seconds(event: LogEntry, field: str) -> float:
    value = event.value[field]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e7:
        raise DataError(f"{event.place} {field}: {str(value)[:40]} is not a step time in s")
    return float(value)


def _progress(found: Sequence[LogEntry], events: Sequence[LogEntry], batch: float | None) -> list[float] | None:
    """Steps since the start of the run at every entry; None if no count rises."""
    for name in COUNTS:
        if not all(name in event.counts for event in found):
            continue
        values = [event.counts[name] for event in found]
        n_rises = sum(after > before for before, after in pairwise(values))
        if 2 * n_rises < len(values) - 1 or n_rises == 0:
            continue
        if name == "step_num" or (name == "step" and not _counts_samples(values, events, batch)):
            return values
        if batch:
            return [value / batch for value in values]
    return None


def _counts_samples(values: list[float], events: Sequence[LogEntry], batch: float | None) -> bool:
    """Whether `step` is a number of samples: whole batches, and the same numbers as samples_count where the log has it."""
    steps = {value for value in values if value > 0}
    if not batch or batch <= 1 or any(value % batch for value in steps):
        return False
    samples = {count for event in events if (count := event.counts.get("samples_count"))}
    return 2 * len(steps & samples) >= min(len(steps), len(samples)) if samples else len(steps) > 2


def _lengths(found: Sequence[LogEntry], batch: float | None) -> list[int]:
    """Steps of every entry whose count is that of its own block; 1 where it says nothing."""
    samples = [event.counts.get("samples_count", 0.0) for event in found]
    return [min(max(round(count / batch), 1), MAX_STEPS) if batch else 1 for count in samples]


def _since(step: list[float]) -> list[int]:
    """Steps since the entry before; for the first, and after a restart, the usual number."""
    gaps = [after - before for before, after in pairwise(step)]
    usual = median(gap for gap in gaps if gap > 0)
    return [min(max(round(gap if gap > 0 else usual), 1), MAX_STEPS) for gap in [0.0, *gaps]]


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
    events: list[LogEntry] = []
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


def _event(record: dict[str, Any], place: str) -> LogEntry:
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
    return LogEntry(place, key, float(time_ms), values, {name: float(count) for name, count in counts.items()})


def _number(value: Any) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= 2**63 if isinstance(value, int) else math.isfinite(value)


def _step_log(path: Path, name: str, steps: LoggedSteps | None, events: list[LogEntry], batch: float | None) -> StepLog:
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
