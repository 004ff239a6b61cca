"""Which worker made a phase slow: the one whose own work grew most, of a trace with the ops of its workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...recorded.trace.durations import durations
from ...recorded.trace.pipeline import COMMUNICATION
from ...recorded.trace.trace import Trace
from ...recorded.trace.waiting_ops import dependencies


@dataclass(frozen=True)
class SlowRank:
    """The worker whose own work grew most.

    Attributes:
        rank: global rank.
        size: growth of its compute, a share.
        others_size: median growth of the other workers; 0 if there are none.
    """

    rank: int
    size: float
    others_size: float


def slow_rank(trace: Trace, onset: int, end: int) -> SlowRank:
    """The worker whose median seconds of compute per step grew most between the steps before `onset` and the phase.

    Args:
        onset, end: indices of steps: the first slow one, and the first that is not; `onset` > 0.

    Notes:
        Waiting is no work: a transfer counts from the arrival of its last peer on and is left out here, so that the workers that
        wait for the slow one do not look slow.
    """
    run_s = durations(trace, dependencies(trace)).run_s
    computes = np.array([op.op_type not in COMMUNICATION and not op.group for op in trace.ops])
    stage = np.array([op.stage for op in trace.ops])
    work_s = np.stack([run_s[computes & (stage == s)].sum(axis=0) for s in range(trace.n_stage)], axis=1)
    before = np.median(work_s[..., :onset], axis=-1)
    growth = np.median(work_s[..., onset:end], axis=-1) / np.maximum(before, 1e-12) - 1.0  # [replica, stage]
    growth = np.where(before > 0, growth, 0.0)
    worst = np.unravel_index(int(np.argmax(growth)), growth.shape)
    others = np.delete(growth.ravel(), int(np.argmax(growth)))
    return SlowRank(int(trace.rank[worst]), float(growth[worst]), float(np.median(others)) if len(others) else 0.0)
