"""The slow phases of a log or trace, and whether to act; what `prism-jax watch` does. No JAX."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from ..core.errors import DataError, PrismError
from ..core.units import seconds_of
from ..core.use_case import UNRECORDED, Option, use_case
from ..recorded.formats.open_trace import detect
from ..recorded.formats.text_logs import TEXT_LOG
from ..recorded.trace_facts import LogReading, Meta, Skip, TraceFile, TraceSource, recorded, trace_facts
from ..trace.detector import SlowPhaseDetector
from ..trace.step_log import StepLog, step_points, without_warm_up
from ..trace.trace import Trace
from .phases import watch
from .remaining import MOST_STEPS, time_left
from .report import WatchReport

RESTART_COST_S = 600.0
SMALLEST, N_LEARN = SlowPhaseDetector.smallest, SlowPhaseDetector.n_learn
FEWEST_LEARNT = 8  # steps, of which the spread can be told within a factor two


@use_case()
def watch_steps(
    source: TraceFile,
    *,
    meta: Meta = None,
    restart_cost_s: Annotated[
        float, Option("--restart-cost", "TIME", parse=seconds_of, default="10min")
    ] = RESTART_COST_S,
    smallest: Annotated[float, Option(metavar="SHARE")] = SMALLEST,
    n_learn: Annotated[int, Option("--learn", "N", key="learn")] = N_LEARN,
    skip: Skip = None,
    log: LogReading = LogReading(),
    remaining: Annotated[int | None, Option(metavar="N")] = None,
) -> WatchReport:
    """Find slow phases in a step log: onset, size, rank, whether to act or to wait; and what is left to run.

    Lasting changes of the step time are found one step after the other, as they would have been found while the job ran.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml next to the trace.
        restart_cost_s: time that a restart costs, from the last step before it to the first after it.
        smallest: smallest change to look for, as a share of the step.
        n_learn: number of first steps that set the usual time and its spread.
        skip: first steps to leave out; None: those that are warm-up (`trace/step_log.py`).
        log: facts that a log does not state itself: unit, meaning of columns, work of a step, pattern.
        remaining: number of steps to come; how long they take is reported (p5, p50, p95).

    Raises:
        DataError, ConfigError: it cannot be read, is too short, or an option is out of range.

    Example:
        >>> watch_steps("train.log", restart_cost_s=600.0).phases[0].verdict  # doctest: +SKIP
        'wait'
    """
    _check(restart_cost_s, smallest, n_learn, remaining)
    recording, n_left_out = without_warm_up(watched_recording(source, meta, log), skip)
    detector = SlowPhaseDetector(smallest=smallest, n_learn=n_learn)
    n_step = len(recording.step_s)
    if n_step < n_learn + detector.confirm:
        raise DataError(
            f"{recording.source}: {n_step} steps, but {n_learn} are learnt from and {detector.confirm} more confirm a change. "
            "Give a longer log, or a smaller --learn."
        )
    watched = watch(recording, restart_cost_s, detector)
    assert watched.noise is not None  # there are more steps than are learnt from
    left = None if remaining is None else time_left(recording.step_s, recording.n_steps, remaining)
    return WatchReport(
        info=trace_facts(recording, n_left_out),
        restart_cost_s=restart_cost_s,
        smallest=smallest,
        normal_s=watched.normal_s,
        spread=watched.noise.log_sd,
        ar1=watched.noise.ar1,
        phases=watched.phases,
        faster_steps=watched.faster_steps,
        settled_steps=watched.settled_steps,
        record=UNRECORDED,
        time_left=left,
        points=step_points(recording.steps, recording.step_s),
    )


def watched_recording(source: TraceSource, meta: Meta = None, log: LogReading = LogReading()) -> Trace | StepLog:
    """The recording whose phases are looked for: of a log of several runs the last one; arguments as those of `watch_steps`.

    Raises:
        DataError, ConfigError: it cannot be read.
    """
    runs = _runs(Path(source)) if isinstance(source, (str, Path)) and not log.stated and meta is None else []
    return _last(runs) or recorded(source, meta, log.stated)


def _runs(file: Path) -> list[tuple[dict[str, Any], StepLog]]:
    """Runs of a text log, each with what its head says; none of another file, which does not wait for what reads heads."""
    with suppress(PrismError):
        if detect(file) is TEXT_LOG:
            from ..launch.head_job import logged_runs

            return logged_runs(file)
    return []


def _last(runs: Sequence[tuple[dict[str, Any], StepLog]]) -> StepLog | None:
    """Steps of the last of several runs of a log, each with a job of its own: that is the one to act upon."""
    if len(runs) < 2:
        return None
    said, steps = runs[-1]
    job = f": {said['n_gpus']} x {said.get('gpu', 'GPUs')}" if "n_gpus" in said else ""
    return replace(steps, notes=(*steps.notes, f"run {len(runs)} of {len(runs)} of the log{job}"))


def _check(restart_cost_s: float, smallest: float, n_learn: int, remaining: int | None) -> None:
    """Raises:
    DataError: an option is out of range.
    """
    if not (isfinite(restart_cost_s) and restart_cost_s > 0):
        raise DataError(f"--restart-cost {restart_cost_s:g} s: it must be more than 0")
    if not 0.005 <= smallest <= 1.0:
        raise DataError(f"--smallest {smallest:g}: it must be a share of the step from 0.005 to 1")
    if not FEWEST_LEARNT <= n_learn <= 100_000:
        raise DataError(f"--learn {n_learn}: it must be from {FEWEST_LEARNT} to 100,000 steps")
    if remaining is not None and not 1 <= remaining <= MOST_STEPS:
        raise DataError(f"--remaining {remaining}: it must be from 1 to {MOST_STEPS:,} steps")
