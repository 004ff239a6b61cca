"""The recording that a use case works on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

from ...errors import DataError
from ...io.traces.open_trace import open_trace
from ...recorded.trace.step_log import StepLog
from ...recorded.trace.trace import Trace
from ...report.option import Argument, Group, Option
from ...report.parameters import Seed

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


TraceFile = Annotated[
    TraceSource,
    Argument(
        metavar="FILE",
        key="file",
        told=named,
        help="A trace or log (formats: `prism-jax show traces`), a folder of PyTorch profiles, execution traces of "
        "PyTorch (a file, a folder, a tar archive), or the shipped local_cluster. "
        "At most 8 million ops are read, which take 2 GB of memory; larger recordings are refused.",
    ),
]
Skip = Annotated[
    int | None,
    Option(
        "--skip",
        "N",
        least=0,
        help="Leave out the first N recorded steps; 0 keeps all. [default: those that are warm-up, see the note]",
    ),
]
Unit = Annotated[
    str | None,
    Option("--unit", "UNIT", help="Unit of step times whose column does not say it: s, ms, us or ns."),
]
Meta = Annotated[
    str | Path | None,
    Option("--meta", "FILE", help="Degrees of the job (YAML); by default the meta-*.yaml beside the trace."),
]


@dataclass(frozen=True)
class StepDraws(Group):
    """Steps that are drawn, and recorded ones that are left out.

    Attributes:
        n_draw: number of steps to draw.
        skip: first steps to leave out; None: those that are warm-up (`recorded/trace/warm_up.py`).
        seed: same seed, same answer.
    """

    n_draw: Annotated[int, Option("--draws", "N", key="draws", least=100, most=1_000_000)] = 4000
    skip: Skip = None
    seed: Seed = 0
