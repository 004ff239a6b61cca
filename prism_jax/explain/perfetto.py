"""Timelines as a file for Perfetto (ui.perfetto.dev) and chrome://tracing: the Chrome trace event format, JSON, gzipped if the
name ends in .gz. Times in microseconds, as the format demands.

One process per timeline, one thread per lane (pipeline stage). An op is one slice that contains two: what its slowest member
computes, and exposed communication with its waiting inside the op. Ops, waits between them and what follows the last op fill a
lane from the start of the step to its end. Arguments of an op tell its pass, micro-batch, kernels, mean over draws, the share of
waiting before it and the slowdown of its GPU; a counter per lane tells the memory that is held; instant events of category
"slow GPU" mark lanes with the slowest GPU and with measured slow ones. Source: "Trace Event Format", Google.
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
from .types import LaneGpu, Timeline, TimelineDetails, words

MAX_EVENTS = 400_000  # some 50 MB of JSON: what a browser opens at ease
SMALLEST_S = 1e-9
SMALLEST_SLOWDOWN = 0.002  # of a GPU that is marked
WORDS_OF_PASSES = {"F": "forward", "B": "backward", "W": "weight gradient"}
GIB = 2.0**30
Event = dict[str, Any]


def write_trace(path: str | Path, timelines: Sequence[Timeline], job_name: str) -> None:
    """Writes `timelines` for a trace viewer, whole or not at all.

    Args:
        path: ends in .json or .json.gz.
        timelines: as made by `explain.explain.timelines`; too many ops for a viewer are cut off at the end of every lane, and
            the trace says so.

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


EVENTS_PER_OP = 6  # the op, its two parts, a wait before it, and at most two changes of memory


def _levels_that_fit(timelines: Sequence[Timeline]) -> int | None:
    """Returns the number of levels to show; None for all."""
    n_op = sum(int((line.label >= 0).sum()) for line in timelines)
    if EVENTS_PER_OP * n_op <= MAX_EVENTS:
        return None
    n_lane = sum(line.label.shape[1] for line in timelines)
    return max(1, MAX_EVENTS // (EVENTS_PER_OP * n_lane))


def _process(line: Timeline, process: int, job_name: str, n_level: int | None) -> Iterator[Event]:
    yield name_event("process_name", process, 0, f"{job_name}: {line.title}, {format_s(line.step_s)}, slowest replica")
    yield sort_event("process_sort_index", process, 0, process)
    for lane in range(line.label.shape[1]):
        yield name_event("thread_name", process, lane, f"stage {lane}{_slow_words(line, lane)}")
        yield sort_event("thread_sort_index", process, lane, lane)
        yield from _lane(line, process, lane, n_level)
        if line.details is not None:
            yield from _memory(line, line.details, process, lane, n_level)


def _slow_words(line: Timeline, lane: int) -> str:
    """Words on a slow GPU of a lane, for the name of its thread; empty where none is slow."""
    gpu = _slow_gpu(line, lane)
    return "" if gpu is None else f", slow GPU: {gpu.name or 'a drawn one'} {gpu.slowdown - 1.0:+.1%}"


def _slow_gpu(line: Timeline, lane: int) -> LaneGpu | None:
    """The GPU of a lane that is to be marked: the slowest of the replica, and every measured one that is slower than average."""
    gpus = () if line.details is None else line.details.gpus
    slowest = max((own.slowdown for own in gpus), default=1.0)
    if not gpus or gpus[lane].slowdown <= 1.0 + SMALLEST_SLOWDOWN:
        return None
    return gpus[lane] if gpus[lane].name or gpus[lane].slowdown == slowest else None


def _lane(line: Timeline, process: int, lane: int, n_level: int | None) -> Iterator[Event]:
    """Ops of one lane in the order of time with the waits between them, then the events behind the last."""
    if (gpu := _slow_gpu(line, lane)) is not None:
        facts = {"gpu": gpu.name or "drawn from the distribution of the fleet", "slowdown": round(gpu.slowdown, 5)}
        yield {**_at("i", "slow GPU", process, lane, 0.0), "s": "t", "cat": "slow GPU", "args": facts}
    free = 0.0
    for level in np.flatnonzero(line.label[:n_level, lane] >= 0):
        start, end = float(line.start_s[level, lane]), float(line.end_s[level, lane])
        compute = min(float(line.compute_s[level, lane]), end - start)
        yield from _part("waiting", process, lane, free, start)
        op = slice_event(line.labels[line.label[level, lane]], "op", process, lane, start, end)
        yield (
            op
            if line.details is None
            else {**op, "args": _op_facts(line, line.details, int(level), lane, start - free)}
        )
        yield from _part("compute", process, lane, start, start + compute)
        yield from _part("exposed communication", process, lane, start + compute, end)
        free = end
    if n_level is not None:
        return
    last = float(line.end_s[:, lane].max(initial=0.0))
    yield from _part("optimizer and parameter exchange", process, lane, last, float(line.end_of_lane_s[lane]))
    yield from _part("waiting", process, lane, float(line.end_of_lane_s[lane]), line.step_s)


def _op_facts(line: Timeline, details: TimelineDetails, level: int, lane: int, waited_s: float) -> Event:
    """Arguments of the slice of an op."""
    parts = details.ops[line.label[level, lane]].parts
    own_s = float(line.end_s[level, lane] - line.start_s[level, lane])
    seconds = details.class_s[level, lane]
    ranked = sorted(
        zip(details.classes, seconds / max(float(seconds.sum()), SMALLEST_S), strict=True), key=lambda one: -one[1]
    )
    gpu = details.gpus[lane]
    return {
        "pass": " + ".join(WORDS_OF_PASSES[part.kind] for part in parts),
        "stage": lane,
        "micro_batch": ", ".join(dict.fromkeys(str(part.micro_batch) for part in parts)),
        "chunk": ", ".join(dict.fromkeys(str(part.chunk) for part in parts)),
        "kernels": ", ".join(f"{words(name)} {share:.0%}" for name, share in ranked if share >= 0.005),
        "seconds": round(own_s, 9),
        "mean_seconds": round(float(details.mean_s[level, lane]), 9),
        "waiting_share": round(max(waited_s, 0.0) / max(waited_s + own_s, SMALLEST_S), 4),
        "gpu_slowdown": round(float(details.slowdown[level, lane]), 5),
        **({"gpu": gpu.name} if gpu.name else {}),
    }


def _memory(line: Timeline, details: TimelineDetails, process: int, lane: int, n_level: int | None) -> Iterator[Event]:
    """Counter of the memory of a stage: activations come with forwards and go with the last backward op of a micro-batch."""
    held = np.zeros(details.chunk_bytes.shape, dtype=int)
    changes = {"F": (slice(None), 1), "W": (0, -1), "B": (1, -1)}  # pass -> rows of `held`, and by how much

    def counter(at_s: float) -> Event:
        sizes = {
            "activations": float((held * details.chunk_bytes).sum()),
            "states, buffers": float(details.other_bytes[lane]),
        }
        counts = {name: round(size / GIB, 6) for name, size in sizes.items()}
        return {**_at("C", f"memory of stage {lane}, GiB", process, lane, at_s), "args": counts}

    yield counter(0.0)
    for level in np.flatnonzero(line.label[:n_level, lane] >= 0):
        parts = details.ops[line.label[level, lane]].parts
        for kinds, at_s in (("F", line.start_s[level, lane]), ("BW", line.end_s[level, lane])):
            found = [part for part in parts if part.kind in kinds]
            for part in found:
                rows, change = changes[part.kind]
                held[rows, part.chunk] += change
            if found:
                yield counter(float(at_s))


def _part(name: str, process: int, lane: int, start_s: float, end_s: float) -> Iterator[Event]:
    if end_s - start_s > SMALLEST_S:
        yield slice_event(name, name, process, lane, start_s, end_s)


def _at(phase: str, name: str, process: int, lane: int, at_s: float) -> Event:
    return {"ph": phase, "name": name, "pid": process, "tid": lane, "ts": round(1e6 * at_s, 3)}


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
