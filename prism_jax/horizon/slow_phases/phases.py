"""`watch`: the slow phases of a log of step times, what each has cost, and whether to act."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats, Ints
from .act_or_wait import act_at
from .detector import Change, SlowPhaseDetector, StepNoise


@dataclass(frozen=True)
class SlowPhase:
    """Steps of one log that lasted longer than those before; all indices are of entries of the log.

    Attributes:
        onset: first slow entry.
        told: entry at which the phase was told.
        end: first entry that is as before; None while the phase lasts.
        normal_s: seconds of a step before.
        slow_s: median seconds of a step in the phase.
        lost_s: seconds that the phase has cost.
        prob: probability of a change when it was told.
        act: entry at which the loss reached the cost of a restart; None if it did not.
    """

    onset: int
    told: int
    end: int | None
    normal_s: float
    slow_s: float
    lost_s: float
    prob: float
    act: int | None

    @property
    def size(self) -> float:
        """By how much steps of the phase are longer, a share of the steps before."""
        return self.slow_s / self.normal_s - 1.0


@dataclass(frozen=True)
class Watched:
    """What a log shows.

    Attributes:
        phases: in the order of the log.
        faster: entries at which steps became shorter than all before, and stayed so.
        settled: entries after an interruption that were off and do not count.
        normal_s: seconds of a step outside slow phases, at the end.
        noise: how steps scatter at the end of the log; None if it is too short to learn.
    """

    phases: tuple[SlowPhase, ...]
    faster: tuple[int, ...]
    settled: tuple[int, ...]
    normal_s: float
    noise: StepNoise | None


def watch(
    step_s: Floats, n_steps: Ints, restarted: NDArray[np.bool_], cost_s: float, detector: SlowPhaseDetector
) -> Watched:
    """The slow phases of a log.

    Args:
        step_s: [entry] seconds per step.
        n_steps: [entry] steps that the entry is a mean of.
        restarted: [entry] whether the job was restarted before it.
        cost_s: seconds that a restart takes.
        detector: that has seen nothing yet; it sees one entry after the other.
    """
    opened: Change | None = None
    phases: list[SlowPhase] = []
    faster: list[int] = []
    for seconds, new in zip(step_s.tolist(), restarted.tolist(), strict=True):
        change = detector.update(seconds, restarted=new)
        if change is None:
            continue
        if opened is None and change.log_size > 0:
            opened = change
        elif opened is None:
            faster.append(change.onset)
        elif detector.log_level - opened.log_before < detector.smallest:
            phases.append(_phase(opened, change.onset, step_s, n_steps, cost_s))
            opened = None
    normal_s = float(np.exp(detector.log_level if opened is None else opened.log_before))
    if opened is not None:
        phases.append(replace(_phase(opened, len(step_s), step_s, n_steps, cost_s), end=None))
    return Watched(tuple(phases), tuple(faster), tuple(detector.settled), normal_s, detector.noise)


def _phase(opened: Change, end: int, step_s: Floats, n_steps: Ints, cost_s: float) -> SlowPhase:
    normal_s = float(np.exp(opened.log_before))
    slow = slice(opened.onset, end)
    lost_s = (step_s[slow] - normal_s) * n_steps[slow]
    act = act_at(lost_s, cost_s)
    return SlowPhase(
        onset=opened.onset,
        told=opened.told,
        end=end,
        normal_s=normal_s,
        slow_s=float(np.median(step_s[slow])),
        lost_s=float(lost_s.sum()),
        prob=opened.prob,
        act=None if act is None else opened.onset + act,
    )
