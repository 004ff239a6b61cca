"""Recorded steps as a file for Perfetto: the same format as `perfetto`, one process per worker and one thread per stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..errors import DataError
from ..trace.dependencies import Dependencies
from ..trace.trace import Trace
from ..trace.who_waits import dependencies
from .perfetto import MAX_EVENTS, Event, name_event, slice_event, write_events


def typical_steps(trace: Trace) -> list[int]:
    """Numbers of the median and of the slowest recorded step."""
    order = np.argsort(trace.step_s)
    return [int(trace.steps[order[len(order) // 2]]), int(trace.steps[order[-1]])]


def write_recorded(path: str | Path, trace: Trace, steps: Sequence[int]) -> None:
    """Writes the recorded `steps`, one after another, whole or not at all.

    Args:
        path: ends in .json or .json.gz.
        trace: what was recorded.
        steps: step numbers.

    Raises:
        DataError: a step that was not recorded, more ops than a viewer can open, or the file cannot be written.
    """
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
        nearest = trace.steps[np.abs(trace.steps - step).argmin()]
        raise DataError(f"--step: step {step} was not recorded; the nearest one is {nearest}")
    return int(found[0])


def _events(trace: Trace, needs: Dependencies, index: Sequence[int]) -> Iterator[Event]:
    for replica in range(trace.n_replica):
        for stage in range(trace.n_stage):
            process = int(trace.rank[replica, stage])
            yield name_event("process_name", process, 0, f"rank {process}: dp {replica}, stage {stage}")
            ops = [op for op, found in enumerate(trace.ops) if found.stage == stage]
            for lane in np.unique(needs.lane[ops]):
                yield name_event("thread_name", process, int(lane), needs.lanes[lane].split(" ", 1)[1])
            yield from _worker(trace, needs, index, replica, process, ops)


def _worker(
    trace: Trace, needs: Dependencies, index: Sequence[int], replica: int, process: int, ops: Sequence[int]
) -> Iterator[Event]:
    origin_s = 0.0
    for step in index:
        for op in ops:
            found = trace.ops[op]
            name = found.op_type if found.micro_batch < 0 else f"{found.op_type} {found.micro_batch}"
            start, end = origin_s + trace.start_s[op, replica, step], origin_s + trace.end_s[op, replica, step]
            yield slice_event(name, found.op_type, process, int(needs.lane[op]), float(start), float(end))
        origin_s += 1.05 * float(trace.step_s[step])
