"""How well a trace's dependencies explain its own steps: three replays of the recorded durations."""

from __future__ import annotations

import numpy as np

from .._typing import Floats
from .replay import replay, replay_program
from .score import MedianError, ReplayErrors
from .trace.durations import durations
from .trace.trace import Trace
from .trace.waiting_ops import dependencies
from .trace.waits import observed_waits


def replay_recorded(trace: Trace) -> ReplayErrors:
    """Relative errors of replayed steps against recorded ones.

    By the rules of the schedule alone, without host gaps (as published simulators replay); with the waits that are read off the
    recording; with host gaps too, which is an identity unless clocks disagree.
    """
    needs = dependencies(trace)
    waits = observed_waits(trace, needs).needs
    run_s, gap_s = durations(trace, waits)
    by_rule = replay(replay_program(trace, needs, trace.n_replica), durations(trace, needs).run_s)
    program = replay_program(trace, waits, trace.n_replica)
    by_rule_error = np.abs(by_rule / trace.step_s - 1.0)
    return ReplayErrors(
        median_abs_error=float(np.median(by_rule_error)),
        p90_abs_error=float(np.quantile(by_rule_error, 0.9)),
        with_observed_waits=_median_error(replay(program, run_s), trace),
        with_host_gaps=_median_error(replay(program, run_s, gap_s), trace),
    )


def _median_error(replayed_s: Floats, trace: Trace) -> MedianError:
    return MedianError(float(np.median(np.abs(replayed_s / trace.step_s - 1.0))))
