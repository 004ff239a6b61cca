"""Opens the recording that a use case works on, and says what was recorded. Times in seconds. Neither JAX nor SciPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np

from ..core.errors import DataError
from ..core.use_case import Argument, Option, OptionGroup
from ..result.parameters import Seed
from ..tables.column_map import pairs_of
from ..trace.rank_times import slow_ranks
from ..trace.stalls import stalls
from ..trace.step_log import StepLog
from ..trace.trace import Trace
from .formats.open_trace import open_trace
from .report import QUANTILES, OpTypeFacts, RecordedJobFacts, RecordedTimes, TraceFacts

TraceSource: TypeAlias = str | Path | Trace | StepLog
NO_KERNELS = "no kernels inside its operations. Record with ProfilerActivity.CUDA (of a CPU: keep its operators)"


def recorded(
    source: TraceSource, meta: str | Path | None = None, stated: Mapping[str, Any] | None = None
) -> Trace | StepLog:
    """Reads the file as an operation trace or a step-time log.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        stated: what a person says of a log: keywords of `open_trace`.

    Raises:
        DataError, ConfigError: see `open_trace`.
    """
    if isinstance(source, (Trace, StepLog)):
        return source
    return open_trace(str(source), None if meta is None else str(meta), **(stated or {}))


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


def with_kernels(source: TraceSource, meta: str | Path | None, stated: Mapping[str, Any]) -> Trace:
    """Opens the trace with its kernels.

    Raises:
        DataError: it has none.
    """
    found = recorded(source, meta, {**stated, "kernels": True})
    if not isinstance(found, Trace) or found.kernels is None or len(found.kernels.op) == 0:
        raise DataError(f"{found.source}: {NO_KERNELS}")
    return found


def named(source: TraceSource) -> str:
    """Name of the recording in a run record."""
    return source.source if isinstance(source, (Trace, StepLog)) else str(source)


TraceFile = Annotated[
    TraceSource,
    Argument(
        metavar="FILE",
        key="file",
        recorded_as=named,
        columns=(
            ("a table of steps", "prism_jax.recorded.formats.scalars:FIELDS"),
            ("a table of operations", "prism_jax.recorded.formats.plain_table:COLUMNS"),
        ),
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
        help="Leave out the first N recorded steps; 0 keeps all; default: those of warm-up (see the note).",
    ),
]


@dataclass(frozen=True)
class LogReading(OptionGroup):
    """Statements about a log or profile that it does not make itself.

    Attributes:
        unit: unit of step times whose name does not say it: s, ms, us or ns.
        columns: column of a table or history and its meaning: step, step_time, rate or clock.
        work_per_step: tokens or samples of a step, by which a rate (tokens/s) becomes a time.
        pattern: regular expression that finds steps in a text: groups step, time_s (time_ms, time_us, time), rate, clock, rank.
        rank: rank of a single Kineto profile, where it does not say.
    """

    heading = "Reading the log"
    unit: Annotated[str | None, Option("--unit", "UNIT")] = None
    columns: Annotated[Mapping[str, str] | None, Option("--map", "COLUMN=FIELD", parse=pairs_of, is_repeated=True)] = (
        None
    )
    work_per_step: Annotated[float | None, Option("--work-per-step", "N")] = None
    pattern: Annotated[str | None, Option("--pattern", "REGEX")] = None
    rank: Annotated[int | None, Option("--rank", "N", least=0, most=10_000_000)] = None

    def inputs(self) -> dict[str, Any]:
        """Inputs for the record: the unit, and what else was stated."""
        return {"unit": self.unit, **self.stated}

    @property
    def stated(self) -> dict[str, Any]:
        """Keywords of `open_trace`."""
        found = {field.name: getattr(self, field.name) for field in fields(LogReading)}
        return {name: value for name, value in found.items() if value is not None}


Meta = Annotated[
    str | Path | None,
    Option("--meta", "FILE", help="Degrees of the job (YAML); by default the meta-*.yaml next to the trace."),
]


@dataclass(frozen=True)
class StepDraws(OptionGroup):
    """Steps that are drawn, and recorded ones that are left out.

    Attributes:
        n_draw: number of steps to draw.
        skip: first steps to leave out; None: those that are warm-up (`trace/step_log.py`).
        seed: same seed, same answer.
    """

    n_draw: Annotated[int, Option("--draws", "N", key="draws", least=100, most=1_000_000)] = 4000
    skip: Skip = None
    seed: Seed = 0


def trace_facts(recorded: Trace | StepLog, n_left_out: int = 0, more_notes: Sequence[str] = ()) -> TraceFacts:
    """Facts about a recording.

    Args:
        recorded: trace or log.
        n_left_out: first steps that are not in `recorded`.
        more_notes: in addition to those of the recording.
    """
    step_s = recorded.step_s
    times = {name: float(np.quantile(step_s, p)) for name, p in QUANTILES.items()}
    is_log = isinstance(recorded, StepLog)
    ranks = recorded.ranks if isinstance(recorded, StepLog) else None
    return TraceFacts(
        what="step log" if is_log else "trace",
        name=recorded.name if is_log else None,
        job=None if is_log else job_facts(recorded),
        source=recorded.source,
        n_steps=len(step_s),
        first_step=int(recorded.steps[0]),
        last_step=int(recorded.steps[-1]),
        n_left_out=n_left_out,
        step_s=RecordedTimes(**times, mean=float(step_s.mean()), cv=float(step_s.std() / step_s.mean())),
        notes=(*recorded.notes, *_means(recorded), *more_notes),
        op_types=None if is_log else _op_types(recorded),
        busy=(None if is_log else recorded.busy) or None,
        stalls=stalls(recorded.steps, step_s, recorded.n_steps, ranks),
        slow_ranks=(None if ranks is None else slow_ranks(ranks)) or None,
    )


def _means(recorded: Trace | StepLog) -> list[str]:
    longest = int(recorded.n_steps.max())
    if longest == 1:
        return []
    return [
        f"times are means over up to {longest:,} steps, and so are those that are predicted; single steps scatter more"
    ]


def job_facts(trace: Trace) -> RecordedJobFacts:
    """Degrees of the job and how much of it was recorded."""
    return RecordedJobFacts(trace.job, trace.job.world_size, trace.n_replica * trace.n_stage, len(trace.ops))


def _op_types(trace: Trace) -> dict[str, OpTypeFacts]:
    """Ops of a replica in a step by op type, and their recorded seconds, waiting included."""
    names = np.array([op.op_type for op in trace.ops])
    seconds = trace.end_s - trace.start_s
    return {
        str(name): OpTypeFacts(
            int((names == name).sum()), float(np.median(seconds[names == name])), float(seconds[names == name].max())
        )
        for name in np.unique(names)
    }
