"""The slow phases of a log or trace, and whether to act; what `prism-jax watch` does. No JAX."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import DataError
from ...horizon.remaining.time_left import MOST_STEPS, time_left
from ...horizon.slow_phases.detector import SlowPhaseDetector
from ...horizon.slow_phases.phases import Watched, watch
from ...io.write import run_record
from ...recorded.trace.step_log import StepLog
from ...recorded.trace.trace import Trace
from ...recorded.trace.warm_up import without_warm_up
from ...report.types.horizon.watch import WatchReport
from ...report.types.record import RunRecord
from .facts import trace_facts
from .source import TraceSource, named, recorded

if TYPE_CHECKING:
    from ...plot.figure import Figure

RESTART_COST_S = 600.0
SMALLEST, N_LEARN = SlowPhaseDetector.smallest, SlowPhaseDetector.n_learn
FEWEST_LEARNT = 8  # steps, of which the spread can be told within a factor two


@dataclass(frozen=True)
class WatchRun:
    """The slow phases with what their report is made of."""

    report: WatchReport
    recording: Trace | StepLog
    watched: Watched

    def figure(self) -> Figure:
        """Step times, level and slow phases."""
        from ...plot import plot_slow_phases  # here, so that reports without a picture do not pay for it

        return plot_slow_phases(self.recording.steps, self.recording.step_s, self.watched)


def watch_steps(source: TraceSource, **options: object) -> WatchReport:
    """The slow phases of a log; arguments as those of `run_watch`.

    Example:
        >>> watch_steps("train.log", restart_cost_s=600.0).phases[0].verdict  # doctest: +SKIP
        'wait'
    """
    return run_watch(source, **options).report  # pyright: ignore[reportArgumentType]


def run_watch(
    source: TraceSource,
    *,
    meta: str | Path | None = None,
    restart_cost_s: float = RESTART_COST_S,
    smallest: float = SMALLEST,
    n_learn: int = N_LEARN,
    skip: int | None = None,
    unit: str | None = None,
    remaining: int | None = None,
) -> WatchRun:
    """Finds lasting changes of the step time, one step after the other, as they would have been found while the job ran.

    Args:
        source: a Trace or StepLog; or a file, folder or pattern that `open_trace` reads.
        meta: degrees of the job (YAML); by default the meta-*.yaml beside the trace.
        restart_cost_s: seconds that a restart takes, from the last step before it to the first after it.
        smallest: smallest change to look for, a share of the step.
        n_learn: first steps, from which the usual time and its spread are learnt.
        skip: first steps to leave out; None: those that are warm-up (`recorded/trace/warm_up.py`).
        unit: of step times whose name does not say it: s, ms, us or ns.
        remaining: steps to come, whose time is told; None: it is not.

    Raises:
        DataError, ConfigError: it cannot be read, is too short, or an option is out of range.
    """
    _check(restart_cost_s, smallest, n_learn, remaining)
    recording, n_left_out = without_warm_up(recorded(source, meta, unit), skip)
    detector = SlowPhaseDetector(smallest=smallest, n_learn=n_learn)
    step_s, n_step = np.asarray(recording.step_s, float), len(recording.step_s)
    if n_step < n_learn + detector.confirm:
        raise DataError(
            f"{recording.source}: {n_step} steps, but {n_learn} are learnt from and {detector.confirm} more confirm a change. "
            "Give a longer log, or a smaller --learn."
        )
    lengths = recording.n_steps if isinstance(recording, StepLog) else np.ones(n_step, int)
    watched = watch(recording, restart_cost_s, detector)
    assert watched.noise is not None  # there are more steps than are learnt from
    left = None if remaining is None else time_left(step_s, lengths, remaining)
    told = {
        "file": named(source),
        "meta": meta,
        "restart_cost_s": restart_cost_s,
        "smallest": smallest,
        "learn": n_learn,
        "skip": skip,
        "unit": unit,
        "remaining": remaining,
    }
    report = WatchReport(
        info=trace_facts(recording, n_left_out),
        restart_cost_s=restart_cost_s,
        smallest=smallest,
        normal_s=watched.normal_s,
        spread=watched.noise.log_sd,
        ar1=watched.noise.ar1,
        phases=watched.phases,
        faster_steps=watched.faster_steps,
        settled_steps=watched.settled_steps,
        record=RunRecord(**run_record(told, None)),
        time_left=left,
    )
    return WatchRun(report, recording, watched)


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
