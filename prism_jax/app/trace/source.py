"""The recording that a use case works on."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from ...errors import DataError
from ...io.traces.open_trace import open_trace
from ...recorded.trace.step_log import StepLog
from ...recorded.trace.trace import Trace

TraceSource: TypeAlias = str | Path | Trace | StepLog


def recorded(source: TraceSource, meta: str | Path | None = None, unit: str | None = None) -> Trace | StepLog:
    """What is recorded, ops or step times.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml beside the trace.
        unit: of step times whose name does not say it: s, ms, us or ns.

    Raises:
        DataError, ConfigError: see `open_trace`.
    """
    if isinstance(source, (Trace, StepLog)):
        return source
    return open_trace(str(source), None if meta is None else str(meta), unit)


def recorded_ops(source: TraceSource, meta: str | Path | None = None) -> Trace:
    """The trace; arguments as those of `recorded`.

    Raises:
        DataError: as `recorded`, or there are step times only.
    """
    found = recorded(source, meta)
    if not isinstance(found, Trace):
        raise DataError(
            f"{found.source}: a log of step times without ops. `trace info` and `trace predict` take it; this needs a trace."
        )
    return found


def named(source: TraceSource) -> str:
    """What a run record calls the recording."""
    return source.source if isinstance(source, (Trace, StepLog)) else str(source)
