"""What of a recorded op was work: plain ops as recorded, transfers from the moment the last peer was there.

A transfer recorded by a waiting worker is as long as the wait; end minus the latest start among the peers is the transfer.
What remains between an op's start and the end of everything it waits for is the host's gap (launch delay): data loading,
Python, a late launch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._typing import Floats
from .dependencies import Dependencies
from .trace import Trace

CLOCK_FAULT_S = 1e-2  # a transfer that ends this long before its last peer starts is a fault of the clocks


class Durations(NamedTuple):
    """Seconds of work and of host gaps, both [op, replica, step].

    Attributes:
        run_s: compute as recorded, transfers without waiting.
        gap_s: from the end of what an op waits for on its own worker to its start.
    """

    run_s: Floats
    gap_s: Floats


def durations(trace: Trace, needs: Dependencies) -> Durations:
    """Work and gaps of every recorded op.

    Slightly negative transfers (clocks disagree by less than 10 ms) are kept, so that means stay right; larger ones are zero.
    """
    ready = ready_s(trace, needs)
    start = np.where(needs.hidden_meeting[:, None, None], ready, trace.start_s)
    run = trace.end_s - last_arrival(start, needs)
    run[run <= -CLOCK_FAULT_S] = 0.0
    gap = start - ready
    gap[gap <= -CLOCK_FAULT_S] = 0.0
    return Durations(run, gap)


def ready_s(trace: Trace, needs: Dependencies) -> Floats:
    """[op, replica, step] when everything that an op waits for on its own worker has ended; 0 where it waits for nothing."""
    ready = np.zeros_like(trace.start_s)
    for op, found in enumerate(needs.after):
        if found:
            ready[op] = trace.end_s[list(found)].max(axis=0)
    return ready


def last_arrival(start_s: Floats, needs: Dependencies) -> Floats:
    """[op, replica, step] latest start among the peers of a transfer; an op's own start where it meets nobody."""
    latest = start_s.copy()
    for members in needs.members():
        together = start_s[members].max(axis=0)
        if needs.meets_replicas[members].any():
            together = np.broadcast_to(together.max(axis=0), together.shape)
        latest[members] = together
    return latest
