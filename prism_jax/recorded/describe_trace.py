"""Tells what a trace or log holds and how its dependencies explain its steps: `trace info`, `replay`, `kernels` and `export`.

An export is the same format as `perfetto`, with one process per worker and one thread per stream, for a timeline viewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import numpy as np

from ..capture.execution.trace import holds_execution_traces
from ..capture.report import ExecutionTraceReport
from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.units import format_s
from ..core.use_case import OUTPUT, UNRECORDED, Argument, Message, Option, use_case
from ..core.write_file import check_target
from ..explain.perfetto import MAX_EVENTS, Event, name_event, slice_event, sort_event, write_events
from ..trace.dependencies import Dependencies
from ..trace.pipeline import dependencies
from ..trace.step_log import without_warm_up
from ..trace.trace import Trace
from .kernel_report import TraceKernelsReport
from .report import TraceInfoReport, TraceReplayReport
from .trace_facts import LogReading, Meta, Skip, TraceFile, named, recorded, recorded_ops, trace_facts, with_kernels


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
    shown = {f"step {step}": f"{format_s(trace.step_s[i], 6)}" for step, i in zip(steps, index, strict=True)}
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


PROFILES = "A PyTorch profile, or a folder or pattern of them, one for each rank; shapes with record_shapes=True."
KERNELS = "Kineto profile of the same run, for the kernel times of execution traces; repeatable."


@use_case()
def describe_trace(
    source: TraceFile,
    *,
    meta: Meta = None,
    skip: Skip = None,
    log: LogReading = LogReading(),
    kernels: Annotated[Sequence[str | Path], Option("--kernels", "FILE", help=KERNELS)] = (),
) -> TraceInfoReport | ExecutionTraceReport:
    """Summarise a trace or log, or the execution traces of a job.

    No JAX is needed.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        skip: first steps to leave out; None: those that are warm-up (`trace/step_log.py`).
        log: facts that a log does not state itself: unit, meaning of columns, work of a step, pattern.
        kernels: Kineto profiles of the run of execution traces: files, archives or folders.

    Raises:
        DataError, ConfigError: it cannot be read.

    Example:
        >>> describe_trace("local_cluster").info.n_steps
        40
    """
    if isinstance(source, (str, Path)) and holds_execution_traces(source):
        from ..capture.execution.program import describe_execution_traces

        return describe_execution_traces(source, kernels)
    if kernels:
        raise DataError(
            f"{named(source)}: no execution traces, and --kernels adds the kernel times of those. Leave it out."
        )
    return TraceInfoReport(trace_facts(*without_warm_up(recorded(source, meta, log.stated), skip)))


@use_case()
def replay_trace(source: TraceFile, *, meta: Meta = None) -> TraceReplayReport:
    """Replay the recorded durations and compare the steps with the recorded ones.

    Args:
        source, meta: as in `describe_trace`.

    Raises:
        DataError: as `describe_trace`, or there are step times only.

    Example:
        >>> replay_trace("local_cluster").replay.with_host_gaps.median_abs_error  # doctest: +SKIP
    """
    trace = recorded_ops(source, meta)
    from .replay import replay_recorded  # needs JAX, which mistakes above do not wait for

    return TraceReplayReport(
        info=trace_facts(trace),
        replay=replay_recorded(trace),
        steps=tuple(trace.steps.tolist()),
        recorded_s=tuple(trace.step_s.tolist()),
        record=UNRECORDED,
    )


@use_case()
def kernels_of_trace(
    source: Annotated[str | Path | Trace, Argument(metavar="FILE", key="file", recorded_as=named, help=PROFILES)],
    *,
    meta: Meta = None,
    skip: Skip = None,
    rank: Annotated[int | None, Option("--rank", "N", least=0, most=10_000_000)] = None,
    top: Annotated[int, Option("--top", "N", least=1, most=1000)] = 20,
) -> TraceKernelsReport:
    """Rank the kernels of a recorded job by what their variation costs, with the time and the spread of each.

    Args:
        source: a Trace with kernels; or a PyTorch profile, a folder or a pattern of them.
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        skip: first steps to leave out; None: those that are warm-up (`trace/step_log.py`).
        rank: rank of a single profile, where it does not say.
        top: kernels that are held still in turn, those first that vary most in a step.

    Raises:
        DataError: it cannot be read, is no profile, or names no kernels inside its operations.

    Example:
        >>> kernels_of_trace("profiles").pools[0].name  # doctest: +SKIP
    """
    trace, n_left_out = without_warm_up(with_kernels(source, meta, {} if rank is None else {"rank": rank}), skip)
    assert trace.kernels is not None
    from .kernel_pools import pool_table  # here, so that mistakes above do not wait for SciPy
    from .recorded_job import fit_job

    table = pool_table(fit_job(trace), trace.kernels, top)
    return TraceKernelsReport(info=trace_facts(trace, n_left_out), table=table, record=UNRECORDED)


def steps_messages(steps: tuple[int, ...], perfetto: str | Path) -> Message:
    """Message that lists the steps that were written."""
    return Message(f"wrote {perfetto}: step {', '.join(map(str, steps))}")


@use_case(then=(steps_messages,), text=lambda _: ())
def export_trace(
    source: TraceFile,
    perfetto: Annotated[str | Path, Option("--perfetto", "FILE", heading=OUTPUT)],
    *,
    meta: Meta = None,
    steps: Annotated[Sequence[int], Option("--step", "N")] = (),
) -> tuple[int, ...]:
    """Write recorded steps as a timeline, one process per worker, one thread per stream; the answer is which steps.

    Args:
        source: a Trace, or a file, folder or pattern that `open_trace` reads.
        perfetto: write a timeline for ui.perfetto.dev (.json, .json.gz).
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        steps: recorded step to write; may be repeated; by default the median and the slowest.

    Raises:
        DataError, ConfigError: the recording cannot be read, or the timeline cannot be written there.

    Example:
        >>> export_trace("local_cluster", "steps.json.gz")  # doctest: +SKIP
    """
    target = str(perfetto)
    if not target.endswith((".json", ".json.gz")):
        raise DataError(f"--perfetto: {target}: the name must end in .json or .json.gz")
    check_target(target)
    trace = recorded_ops(source, meta)
    if isinstance(source, (str, Path)):
        _check_not_among_inputs(named(source), target)

    chosen = list(dict.fromkeys(steps or typical_steps(trace)))
    write_recorded(target, trace, chosen)
    return tuple(chosen)


def _check_not_among_inputs(file: str, perfetto: str) -> None:
    """A timeline must not replace a recorded profile, nor lie among those of a folder or pattern."""
    source, target = Path(file), Path(perfetto)
    if target.exists() and source.exists() and target.samefile(source):
        raise DataError(f"--perfetto: {perfetto}: that is the recorded trace itself. Name another file.")
    folder, pattern = (source, "*") if source.is_dir() else (source.parent, source.name)
    if target.parent.resolve() == folder.resolve() and fnmatch(target.name, pattern):
        raise DataError(
            f"--perfetto: {perfetto}: there it would be taken for a part of the trace. Name a file in another folder."
        )
