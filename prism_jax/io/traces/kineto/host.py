"""Ops of a rank without GPU: gloo's collectives, and the rest of each step as compute between them.

Every step has one compute op before each communication and one after the last: from the end of all communication so far to the
start of the next, of length zero where the next one has begun by then. Together they fill the step, so that compute which
overlaps communication counts as communication.
"""

from __future__ import annotations

import numpy as np

from .communication import Peers, communication_ops
from .ops import RankOps, Rows, join, rank_ops, step_at, steps_of
from .spans import RankProfile, Spans, What

COMPUTE, STREAM = "compute", "gloo"


def host_ops(profile: RankProfile, peers: Peers) -> RankOps:
    """Ops of the rank's host.

    Communication is taken from gloo's own spans ("gloo:all_reduce"), else from the calls ("c10d::allreduce_").

    Raises:
        DataError: no steps.
    """
    steps = steps_of(profile)
    for what in (What.COMMUNICATION, What.COMMUNICATION_CALL):
        spans = profile.spans[what]
        step = step_at(spans.start_us, steps)
        if (step >= 0).any():
            break
    inside = step >= 0
    spans, step = spans.pick(inside), step[inside]
    streams = np.full(len(spans), STREAM)
    return join([_between(steps, spans), communication_ops(profile, spans, step, spans.start_us, streams, peers)])


def _between(steps: Spans, spans: Spans) -> RankOps:
    """Compute before, between and after the communication `spans` of every step; both by start."""
    at = np.searchsorted(steps.start_us, spans.start_us, side="right") - 1
    start, end, step = [], [], []
    for index in range(len(steps)):
        mine = slice(*np.searchsorted(at, [index, index + 1]))
        begins, ends = spans.start_us[mine], spans.end_us[mine]
        free = np.maximum.accumulate([steps.start_us[index], *ends])
        start.append(free)
        end.append(np.maximum(free, [*begins, steps.end_us[index]]))
        step.append(np.full(len(free), steps.code[index]))
    starts, ends_ = np.concatenate(start), np.concatenate(end)
    numbers: Rows = np.concatenate(step)
    names = np.full(len(starts), COMPUTE)
    return rank_ops(step=numbers, op_type=names, stream=names, start_us=starts, duration_us=ends_ - starts)
