"""What a trace or log holds, and how its dependencies explain its steps; `prism-jax trace info` and `trace replay`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from ...errors import DataError
from ...io.execution.documents import holds_execution_traces
from ...recorded.trace.warm_up import without_warm_up
from ...report.option import Option
from ...report.types.captured.execution import ExecutionTraceReport
from ...report.types.trace import TraceInfoReport, TraceReplayReport
from ...report.use_case import UNRECORDED, use_case
from .facts import trace_facts
from .source import Meta, Skip, TraceFile, Unit, named, recorded, recorded_ops

KERNELS = "Kineto profile of the same run, for the kernel times of execution traces; repeatable."


@use_case()
def describe_trace(
    source: TraceFile,
    *,
    meta: Meta = None,
    skip: Skip = None,
    unit: Unit = None,
    kernels: Annotated[Sequence[str | Path], Option("--kernels", "FILE", help=KERNELS)] = (),
) -> TraceInfoReport | ExecutionTraceReport:
    """Summarise a trace or log, or the execution traces of a job.

    No JAX is needed.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml beside the trace.
        skip: first steps to leave out; None: those that are warm-up (`recorded/trace/warm_up.py`).
        unit: of step times whose name does not say it: s, ms, us or ns.
        kernels: Kineto profiles of the run of execution traces: files, archives or folders.

    Raises:
        DataError, ConfigError: it cannot be read.

    Example:
        >>> describe_trace("local_cluster").info.n_steps
        40
    """
    if isinstance(source, (str, Path)) and holds_execution_traces(source):
        from .execution import describe_execution_traces

        return describe_execution_traces(source, kernels)
    if kernels:
        raise DataError(
            f"{named(source)}: no execution traces, and --kernels adds the kernel times of those. Leave it out."
        )
    return TraceInfoReport(trace_facts(*without_warm_up(recorded(source, meta, unit), skip)))


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
    from ...recorded.replay_recorded import replay_recorded  # needs JAX, which mistakes above do not wait for

    return TraceReplayReport(
        info=trace_facts(trace),
        replay=replay_recorded(trace),
        steps=tuple(trace.steps.tolist()),
        recorded_s=tuple(trace.step_s.tolist()),
        record=UNRECORDED,
    )
