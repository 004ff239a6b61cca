"""The trace that a command works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ....recorded.trace.step_log import StepLog
    from ....recorded.trace.trace import Trace

TraceFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Parquet, CSV, PyTorch profile (folder or pattern of all ranks), training or MLPerf log; or local_cluster, shipped.",
    ),
]
Meta = Annotated[
    str | None,
    typer.Option(
        "--meta", metavar="FILE", help="Degrees of the job (YAML); by default the meta-*.yaml beside the trace."
    ),
]


def recorded(file: str, meta: str | None) -> Trace | StepLog:
    """What is recorded in `file`, ops or step times.

    Raises:
        DataError, ConfigError: see `open_trace`.
    """
    from ....io.traces.open_trace import open_trace  # here, so that --help does not pay for it

    return open_trace(file, meta)


def recorded_ops(file: str, meta: str | None) -> Trace:
    """The trace in `file`.

    Raises:
        DataError: as `recorded`, or the file holds step times only.
    """
    from ....errors import DataError
    from ....recorded.trace.trace import Trace

    found = recorded(file, meta)
    if not isinstance(found, Trace):
        raise DataError(
            f"{file}: a log of step times without ops. `trace info` and `trace predict` take it; this needs a trace."
        )
    return found
