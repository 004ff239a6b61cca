"""Recorded steps as a file for Perfetto: the same format as `perfetto`, one process per worker and one thread per stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from .._typing import Floats
from ..errors import DataError
from ..recorded.trace.dependencies import Dependencies
from ..recorded.trace.trace import Trace
from ..recorded.trace.waiting_ops import dependencies
from .perfetto import MAX_EVENTS, Event, name_event, slice_event, sort_event, write_events


def typical_steps(trace: Trace) -> list[int]:
    """Numbers of the median and of the slowest recorded step; one number if there is but one step."""
    order = np.argsort(trace.step_s)
    return list(dict.fromkeys([int(trace.steps[order[(len(order) - 1) // 2]]), int(trace.steps[order[-1]])]))


def write_recorded(path: str | Path, trace: Trace, steps: Sequence[int]) -> None:
    """Writes the recorded `steps`, one after another, whole or not at all.

    Args:
        path: ends in .json or .json.gz.
        trace: what was recorded.
        steps: step numbers; each is written once.

    Raises:
        DataError: a step that was not recorded, more ops than a viewer can open, or the file cannot be written.
    """
    steps = list(dict.fromkeys(steps))
    index = [_index(trace, step) for step in steps]
    n_event = len(trace.ops) * trace.n_replica * len(index)
    if n_event > MAX_EVENTS:
        raise DataError(
            f"{trace.source}: {n_event:,} ops are more than a viewer opens ({MAX_EVENTS:,}). Choose fewer steps."
        )
    needs = dependencies(trace)
    shown = {f"step {step}": f"{trace.step_s[i]:.6g} s" for step, i in zip(steps, index, strict=True)}
    write_events(path, list(_events(trace, needs, index)), {"job": trace.job.name, **shown})


def _index(trace: Trace, step: int) -> int:
    found = np.flatnonzero(trace.steps == step)
    if len(found) == 0:
        nearest = min(trace.steps.tolist(), key=lambda recorded: abs(recorded - step))
        raise DataError(f"--step: step {step} was not recorded; the nearest one is {nearest}")
    return int(found[0])


def _events(trace: Trace, needs: Dependencies, index: Sequence[int]) -> Iterator[Event]:
    counted = "dp" if trace.n_replica == trace.job.dp else "recorded replica"
    for replica in range(trace.n_replica):
        for stage in range(trace.n_stage):
            process = int(trace.rank[replica, stage])
            yield name_event("process_name", process, 0, f"rank {process}: {counted} {replica}, stage {stage}")
            ops = [op for op, found in enumerate(trace.ops) if found.stage == stage]
            for lane in np.unique(needs.lane[ops]).tolist():
                yield name_event("thread_name", process, lane, needs.lanes[lane].name)
                yield sort_event("thread_sort_index", process, lane, lane)
            yield from _worker(trace, needs, index, replica, process, ops)


def _worker(
    trace: Trace, needs: Dependencies, index: Sequence[int], replica: int, process: int, ops: Sequence[int]
) -> Iterator[Event]:
    origin_s = 0.0
    for step in index:
        start, end = trace.start_s[:, replica, step], trace.end_s[:, replica, step]
        for op, end_s in _shown_ends(start, end, needs, ops):
            found = trace.ops[op]
            name = found.op_type if found.micro_batch < 0 else f"{found.op_type} {found.micro_batch}"
            place = process, int(needs.lane[op])
            yield slice_event(name, found.op_type, *place, origin_s + float(start[op]), origin_s + end_s)
        origin_s += 1.05 * float(trace.step_s[step])


def _shown_ends(start_s: Floats, end_s: Floats, needs: Dependencies, ops: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Ops in the order in which they started, and their ends.

    Ops of a lane run one after another, but clocks and rounding let them overlap by microseconds; viewers take what overlaps for
    a call of one op by the other. So an op is shown to end when the next of its lane starts.
    """
    next_start_s: dict[int, float] = {}
    shown = []
    for op in sorted(ops, key=lambda op: (start_s[op], end_s[op]), reverse=True):
        lane = int(needs.lane[op])
        shown.append((op, min(float(end_s[op]), next_start_s.get(lane, np.inf))))
        next_start_s[lane] = float(start_s[op])
    yield from reversed(shown)
