"""Finds the slow phases of a log of step times, what each has cost, which worker made it slow, and whether to act.

Restart now, or wait for a slow phase to end, is ski rental: act when the seconds lost reach the cost of a restart. Nobody knows
how long a phase lasts. Whoever acts at that moment pays at most twice what the best decision in hindsight would have cost (and
the loss of one step), and no rule without a forecast promises less. The worker is the one whose own work grew most, of a trace
with the ops of its workers.

Source: Karlin, Manasse, Rudolph, Sleator, "Competitive snoopy caching" (1988); for slow phases of jobs, arXiv:2410.12588.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np

from ..core.arrays import Floats
from ..core.report import WHERE_KNOWN
from ..trace.dependencies import durations
from ..trace.detector import ChangePoint, SlowPhaseDetector, StepNoise
from ..trace.pipeline import COMMUNICATION, dependencies
from ..trace.step_log import StepLog
from ..trace.trace import Trace


def act_at(lost_s: Floats, cost_s: float) -> int | None:
    """Index of the step after which to act; None if the loss stays below the cost.

    Args:
        lost_s: [step] seconds lost by every step of the phase.
        cost_s: seconds that a restart takes.
    """
    reached = np.flatnonzero(np.cumsum(lost_s) >= cost_s)
    return int(reached[0]) if len(reached) else None


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


def slow_rank(trace: Trace, onset: int, end: int | None) -> SlowRank:
    """The worker whose median seconds of compute per step grew most between the steps before `onset` and the phase.

    Args:
        onset, end: indices of steps: the first slow one, and the first that is not, None for none; `onset` > 0.
    """
    work_s = compute_s(trace)
    before = np.median(work_s[..., :onset], axis=-1)
    growth = np.median(work_s[..., onset:end], axis=-1) / np.maximum(before, 1e-12) - 1.0  # [replica, stage]
    growth = np.where(before > 0, growth, 0.0)
    worst = np.unravel_index(int(np.argmax(growth)), growth.shape)
    others = np.delete(growth.ravel(), int(np.argmax(growth)))
    return SlowRank(int(trace.rank[worst]), float(growth[worst]), float(np.median(others)) if len(others) else 0.0)


def compute_s(trace: Trace) -> Floats:
    """[replica, stage, step] seconds that every worker computes.

    Waiting is no work: a transfer counts from the arrival of its last peer on and is left out here, so that the workers that wait
    for the slow one do not look slow.
    """
    run_s = durations(trace, dependencies(trace)).run_s
    computes = np.array([op.op_type not in COMMUNICATION and not op.group for op in trace.ops])
    stage = np.array([op.stage for op in trace.ops])
    return np.stack([run_s[computes & (stage == s)].sum(axis=0) for s in range(trace.n_stage)], axis=1)


@dataclass(frozen=True)
class DetectedPhase:
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
    """Phases and noise found in a log.

    Attributes:
        phases: in the order of the log.
        faster_steps: steps from which on the job was faster than all before.
        settled_steps: steps after a restart, an evaluation or a checkpoint that were off; they raise no alarm.
        normal_s: seconds of a step outside slow phases, at the end of the log.
        noise: how steps scatter at the end of the log; None if it is too short to learn.
    """

    phases: tuple[DetectedPhase, ...]
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
    steps = recording.steps
    restarted = np.diff(steps, prepend=steps[0]) < 0
    opened: ChangePoint | None = None
    phases: list[DetectedPhase] = []
    faster: list[int] = []
    for seconds, new in zip(recording.step_s.tolist(), restarted.tolist(), strict=True):
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


def _phase(recording: Trace | StepLog, opened: ChangePoint, end: int | None, cost_s: float) -> DetectedPhase:
    """The phase from the entry at which it opened to the entry `end`, which is as before; None: it lasts."""
    steps, step_s = recording.steps, recording.step_s
    slow = slice(opened.onset, end)
    normal_s, slow_s = float(np.exp(opened.log_before)), float(np.median(step_s[slow]))
    losses_s = (step_s[slow] - normal_s) * recording.n_steps[slow]
    lost_s, act = float(losses_s.sum()), act_at(losses_s, cost_s)
    waits = end is None and act is None
    per_step_s = max(slow_s - normal_s, 1e-12)
    return DetectedPhase(
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
        slow_rank=slow_rank(recording, opened.onset, end) if isinstance(recording, Trace) else None,
    )
