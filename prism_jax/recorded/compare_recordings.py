"""Two recordings, or several of either side, compared: did the change help? What `prism-jax trace compare` does. No JAX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.use_case import UNRECORDED, Argument, Message, Option, use_case
from ..trace.rank_times import median_by
from ..trace.step_log import StepLog, without_warm_up
from ..trace.trace import Trace
from .comparison_report import TraceComparisonReport
from .paired_runs import FEWEST_STEPS, RatioInterval, RunSteps, compared_runs, quantile_ratio, shared_steps
from .report import counted
from .trace_facts import LogReading, Skip, TraceSource, named, recorded

FILES = "Recordings or step logs: A and B; or all runs of A, where --against names those of B."
MOST_PARTS = 100


def verdict_message(report: TraceComparisonReport) -> Message | None:
    """Message that makes the command fail where B is slower."""
    if not report.is_failed:
        return None
    return Message("B is slower than A beyond run-to-run noise", always=True, failed=True)


@use_case(then=(verdict_message,))
def compare_recordings(
    files: Annotated[
        Sequence[TraceSource],
        Argument(metavar="FILE...", help=FILES, recorded_as=lambda files: [named(one) for one in files]),
    ],
    *,
    against: Annotated[
        Sequence[TraceSource],
        Option("--against", "FILE", is_repeated=True, recorded_as=lambda files: [named(one) for one in files]),
    ] = (),
    threshold: Annotated[float, Option(metavar="SHARE", least=0.0, most=10.0)] = 0.0,
    run_spread: Annotated[float | None, Option(metavar="SHARE", least=0.0, most=1.0)] = None,
    skip: Skip = None,
    log: LogReading = LogReading(),
) -> TraceComparisonReport:
    """Compare recorded steps of two programs: p50, p95 and parts, beyond run-to-run noise or not, and where it begins.

    Args:
        files: two recordings, A and B; with `against` all runs of A.
        against: a run of B; may be repeated.
        threshold: share by which B must be slower than A to fail (exit code 1); beyond noise it must be in any case.
        run_spread: sd of the level of runs of one program, a share; by default 0.006, or learnt from several runs of a side.
        skip: first steps to leave out; None: those that are warm-up.
        log: facts that logs do not state themselves.

    Raises:
        DataError, ConfigError: a recording cannot be read, has too few steps, or files are missing.

    Example:
        >>> compare_recordings(["before.log", "after.log"]).result  # doctest: +SKIP
        'faster'
    """
    sides = _sides(files, against)
    read = [[without_warm_up(recorded(one, None, log.stated), skip)[0] for one in side] for side in sides]
    a, b = ([_steps(one) for one in side] for side in read)
    found = compared_runs(a, b, run_spread)
    own_a, own_b = shared_steps(a, b)
    typical, change = found.typical, found.change
    lows = [math.log(typical.low), *([] if change is None else [math.log(change.low)])]
    beyond = typical if typical.is_beyond_noise else change
    result = "same" if beyond is None else "slower" if beyond.ratio > 1.0 else "faster"
    notes = [f"{one.source}: {note}" for side in read for one in side for note in one.notes]
    longest = max(len(run.step) for run in (*a, *b))
    if found.is_paired and found.n_paired < 0.9 * longest:
        notes.append(f"{found.n_paired:,} of up to {longest:,} recorded steps are shared by all runs, and compared")
    if not found.is_paired:
        notes.append(
            "the runs share few step numbers: levels are compared, and what differs in their schedules counts as a difference"
        )
    return TraceComparisonReport(
        a=tuple(named(one) for one in sides[0]),
        b=tuple(named(one) for one in sides[1]),
        n_steps_a=sum(int(run.n_steps.sum()) for run in a),
        n_steps_b=sum(int(run.n_steps.sum()) for run in b),
        n_paired=found.n_paired,
        typical=typical,
        p50=quantile_ratio(own_a, own_b, 0.5, found.run_spread),
        p95=quantile_ratio(own_a, own_b, 0.95, found.run_spread),
        ratios=_parts(read, run_spread),
        change=change,
        run_spread=found.run_spread,
        threshold=threshold,
        result=result,
        is_failed=result == "slower" and max(lows) > math.log1p(threshold),
        notes=tuple(dict.fromkeys(notes)),
        record=UNRECORDED,
        points=found.points,
    )


def _sides(files: Sequence[TraceSource], against: Sequence[TraceSource]) -> tuple[list[TraceSource], list[TraceSource]]:
    """Runs of A and of B.

    Raises:
        DataError: neither two files, nor files with `against`.
    """
    if against and files:
        return [*files], [*against]
    if len(files) != 2:
        raise DataError(
            f"{counted(len(files), 'recording')}. Give two, A and B; or the runs of A, and those of B by --against (repeatable)."
        )
    return [files[0]], [files[1]]


def _steps(one: Trace | StepLog) -> RunSteps:
    """Steps of a recording, however it was made.

    Raises:
        DataError: a step takes no time.
    """
    step_s = one.step_s
    if len(step_s) < FEWEST_STEPS or not (step_s > 0.0).all():
        raise DataError(
            f"{one.source}: {len(step_s)} recorded steps; a comparison needs {FEWEST_STEPS} or more, of positive time"
        )
    return RunSteps(one.source, one.steps, step_s, one.n_steps.astype(np.int64))


def _parts(read: Sequence[Sequence[Trace | StepLog]], run_spread: float | None) -> dict[str, RatioInterval]:
    """Ratios of the parts that all recordings have."""
    parts = [[part_seconds(one) for one in side] for side in read]
    names = [name for name in parts[0][0] if all(name in one for side in parts for one in side)]
    found = {}
    for name in names[:MOST_PARTS]:
        a, b = (
            [_of_part(one, own[name]) for one, own in zip(side, of_side, strict=True)]
            for side, of_side in zip(read, parts, strict=True)
        )
        if min(len(run.step) for run in (*a, *b)) >= FEWEST_STEPS:
            found[name] = compared_runs(a, b, run_spread).typical
    return found


def _of_part(one: Trace | StepLog, seconds: Floats) -> RunSteps:
    """The part in place of the step, in the steps that have it."""
    there = np.isfinite(seconds) & (seconds > 0.0)
    return RunSteps(one.source, one.steps[there], seconds[there], one.n_steps[there].astype(np.int64))


def part_seconds(one: Trace | StepLog) -> Mapping[str, Floats]:
    """Seconds of named parts of every step [step]: op types of a trace, waiting included, or columns of a log of ranks."""
    if isinstance(one, Trace):
        seconds = (one.end_s - one.start_s).mean(axis=1)
        names = np.array([op.op_type for op in one.ops])
        return {str(name): seconds[names == name].sum(axis=0) for name in np.unique(names)}
    if one.ranks is None:
        return {}
    found: dict[str, Floats] = {}
    for name, seconds in one.ranks.parts_s.items():
        rows = np.isfinite(seconds)
        found[name] = median_by(one.ranks.entry[rows], seconds[rows], len(one.step_s))
    return found
