"""Timelines as a file for Perfetto (ui.perfetto.dev) and chrome://tracing: the Chrome trace event format, JSON, gzipped if the
name ends in .gz. Times in microseconds, as the format demands.

One process per timeline, one thread per lane (pipeline stage). An op is one slice that contains two: what its slowest member
computes, and exposed communication with its waiting inside the op. Source: "Trace Event Format", Google.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.units import format_s
from ..core.write_file import write_bytes
from .types import Timeline

MAX_EVENTS = 400_000  # some 50 MB of JSON: what a browser opens at ease
SMALLEST_S = 1e-9
Event = dict[str, Any]


def write_trace(path: str | Path, timelines: Sequence[Timeline], job_name: str) -> None:
    """Writes `timelines` for a trace viewer, whole or not at all.

    Args:
        path: ends in .json or .json.gz.
        timelines: as made by `explain.explain.timelines`; too many ops for a viewer are cut off at the end of every lane, and the
        trace
            says so.

    Raises:
        DataError: the file cannot be written.
    """
    _write(path, trace(timelines, job_name))


def write_events(path: str | Path, events: Sequence[Event], other: Mapping[str, str]) -> None:
    """Writes events for a trace viewer, whole or not at all; `other` are facts that it shows with them."""
    _write(path, {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other})


def _write(path: str | Path, content: Event) -> None:
    text = json.dumps(content, separators=(",", ":")).encode()
    # A fixed time in the header: the same timelines give the same bytes.
    write_bytes(path, gzip.compress(text, mtime=0) if str(path).endswith(".gz") else text)


def trace(timelines: Sequence[Timeline], job_name: str) -> Event:
    """The content of the file: {"traceEvents": [...], ...}."""
    n_level = _levels_that_fit(timelines)
    events = [event for process, line in enumerate(timelines) for event in _process(line, process, job_name, n_level)]
    shown = {line.title: f"{format_s(line.step_s, 6)}" for line in timelines}
    cut = {} if n_level is None else {"cut": f"only the first {n_level} ops of every lane are shown"}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"job": job_name, **shown, **cut}}


def _levels_that_fit(timelines: Sequence[Timeline]) -> int | None:
    """Returns the number of levels to show; None for all."""
    n_op = sum(int((line.label >= 0).sum()) for line in timelines)
    if 3 * n_op <= MAX_EVENTS:
        return None
    n_lane = sum(line.label.shape[1] for line in timelines)
    return max(1, MAX_EVENTS // (3 * n_lane))


def _process(line: Timeline, process: int, job_name: str, n_level: int | None) -> Iterator[Event]:
    yield name_event("process_name", process, 0, f"{job_name}: {line.title}, {format_s(line.step_s)}, slowest replica")
    yield sort_event("process_sort_index", process, 0, process)
    for lane in range(line.label.shape[1]):
        yield name_event("thread_name", process, lane, f"stage {lane}")
        yield sort_event("thread_sort_index", process, lane, lane)
        yield from _lane(line, process, lane, n_level)


def _lane(line: Timeline, process: int, lane: int, n_level: int | None) -> Iterator[Event]:
    """Ops of one lane in the order of time, then the events behind the last."""
    for level in np.flatnonzero(line.label[:n_level, lane] >= 0):
        start, end = float(line.start_s[level, lane]), float(line.end_s[level, lane])
        compute = min(float(line.compute_s[level, lane]), end - start)
        yield slice_event(line.labels[line.label[level, lane]], "op", process, lane, start, end)
        yield from _part("compute", process, lane, start, start + compute)
        yield from _part("exposed communication", process, lane, start + compute, end)
    last = float(line.end_s[:, lane].max(initial=0.0))
    yield from _part("optimizer and parameter exchange", process, lane, last, float(line.end_of_lane_s[lane]))


def _part(name: str, process: int, lane: int, start_s: float, end_s: float) -> Iterator[Event]:
    if end_s - start_s > SMALLEST_S:
        yield slice_event(name, name, process, lane, start_s, end_s)


def slice_event(name: str, category: str, process: int, lane: int, start_s: float, end_s: float) -> Event:
    """A complete event; nanosecond digits suffice, and both ends are rounded so that inner slices stay inside outer ones."""
    start, end = round(1e6 * start_s, 3), round(1e6 * end_s, 3)
    duration = round(end - start, 3)
    return {"ph": "X", "name": name, "cat": category, "pid": process, "tid": lane, "ts": start, "dur": duration}


def name_event(kind: str, process: int, lane: int, text: str) -> Event:
    """Name of a process or thread, `kind` being process_name or thread_name."""
    return {"ph": "M", "name": kind, "pid": process, "tid": lane, "args": {"name": text}}


def sort_event(kind: str, process: int, lane: int, index: int) -> Event:
    """Place of a process or thread among the others, `kind` being process_sort_index or thread_sort_index."""
    return {"ph": "M", "name": kind, "pid": process, "tid": lane, "args": {"sort_index": index}}
