"""`watch`: the slow phases of a log of step times, what each has cost, and whether to act."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np

from ...recorded.trace.step_log import StepLog
from ...recorded.trace.trace import Trace
from ...report.codec import WHERE_KNOWN
from .act_or_wait import act_at
from .detector import Change, SlowPhaseDetector, StepNoise
from .rank import SlowRank, slow_rank


@dataclass(frozen=True)
class SlowPhase:
    """Steps that lasted longer than those before.

    Attributes:
        onset_step: first slow step.
        told_step: step at which the phase was certain.
        end_step: first step that is as before; None while the phase lasts.
        size: by how much its steps are longer, a share.
        normal_s, slow_s: median seconds of a step before and in the phase.
        lost_s: seconds that the phase has cost.
        prob: probability of a change when it was told.
        verdict: act, wait or over.
        act_step: step at which the loss reached the cost of a restart; None if it did not.
        wait_steps: further steps until it will, as slow as now; None if it did, or the phase is over.
        slow_rank: absent if the log has no ranks.
    """

    onset_step: int
    told_step: int
    end_step: int | None
    size: float
    normal_s: float
    slow_s: float
    lost_s: float
    prob: float
    verdict: str
    act_step: int | None
    wait_steps: int | None
    slow_rank: Annotated[SlowRank | None, WHERE_KNOWN] = None


@dataclass(frozen=True)
class Watched:
    """What a log shows.

    Attributes:
        phases: in the order of the log.
        faster_steps: steps from which on the job was faster than all before.
        settled_steps: steps after a restart, an evaluation or a checkpoint that were off; they raise no alarm.
        normal_s: seconds of a step outside slow phases, at the end of the log.
        noise: how steps scatter at the end of the log; None if it is too short to learn.
    """

    phases: tuple[SlowPhase, ...]
    faster_steps: tuple[int, ...]
    settled_steps: tuple[int, ...]
    normal_s: float
    noise: StepNoise | None


def watch(recording: Trace | StepLog, cost_s: float, detector: SlowPhaseDetector) -> Watched:
    """The slow phases of a recording.

    Args:
        recording: trace or log.
        cost_s: seconds that a restart takes.
        detector: that has seen nothing yet; it sees one entry after the other.
    """
    steps = np.asarray(recording.steps)
    restarted = np.diff(steps, prepend=steps[0]) < 0
    opened: Change | None = None
    phases: list[SlowPhase] = []
    faster: list[int] = []
    for seconds, new in zip(np.asarray(recording.step_s, float).tolist(), restarted.tolist(), strict=True):
        change = detector.update(seconds, restarted=new)
        if change is None:
            continue
        if opened is None and change.log_size > 0:
            opened = change
        elif opened is None:
            faster.append(change.onset)
        elif detector.log_level - opened.log_before < detector.smallest:
            phases.append(_phase(recording, opened, change.onset, cost_s))
            opened = None
    normal_s = float(np.exp(detector.log_level if opened is None else opened.log_before))
    if opened is not None:
        phases.append(_phase(recording, opened, None, cost_s))
    off = tuple(steps[list(detector.settled)].tolist())
    return Watched(tuple(phases), tuple(steps[faster].tolist()), off, normal_s, detector.noise)


def _phase(recording: Trace | StepLog, opened: Change, end: int | None, cost_s: float) -> SlowPhase:
    """The phase from the entry at which it opened to the entry `end`, which is as before; None: it lasts."""
    steps, step_s = np.asarray(recording.steps), np.asarray(recording.step_s, float)
    slow = slice(opened.onset, end)
    n_per_entry = recording.n_steps if isinstance(recording, StepLog) else np.ones(len(step_s), int)
    normal_s, slow_s = float(np.exp(opened.log_before)), float(np.median(step_s[slow]))
    losses_s = (step_s[slow] - normal_s) * n_per_entry[slow]
    lost_s, act = float(losses_s.sum()), act_at(losses_s, cost_s)
    waits = end is None and act is None
    per_step_s = max(slow_s - normal_s, 1e-12)
    is_trace = isinstance(recording, Trace)
    return SlowPhase(
        onset_step=int(steps[opened.onset]),
        told_step=int(steps[opened.told]),
        end_step=None if end is None else int(steps[end]),
        size=slow_s / normal_s - 1.0,
        normal_s=normal_s,
        slow_s=slow_s,
        lost_s=lost_s,
        prob=opened.prob,
        verdict="wait" if waits else "act" if end is None else "over",
        act_step=None if act is None else int(steps[opened.onset + act]),
        wait_steps=ceil(max(cost_s - lost_s, 0.0) / per_step_s) if waits else None,
        slow_rank=slow_rank(recording, opened.onset, len(steps) if end is None else end) if is_trace else None,
    )
