"""Changes of the level of recorded step times, for whoever takes all steps of a recording for one law."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Floats
from ..core.units import format_s
from .detector import SlowPhaseDetector

MOST_STEPS = 20_000  # that are looked at: a few seconds
MOST_NAMED = 3  # changes


class LevelChange(NamedTuple):
    """A new level that lasts: the step at which it begins, and the median seconds of a step before and after."""

    step: int
    before_s: float
    after_s: float


def level_changes(step_s: Floats | Sequence[float], steps: ArrayLike | None = None) -> list[LevelChange]:
    """Changes of level in a series of step times, as `prism-jax watch` finds them.

    Args:
        step_s: [entry] seconds, positive, in the order of time.
        steps: [entry] numbers; a fall is a restart. None: counted from 0.
    """
    seconds = np.asarray(step_s, dtype=np.float64)[:MOST_STEPS]
    numbers = np.arange(len(seconds)) if steps is None else np.asarray(steps)[: len(seconds)]
    if len(seconds) == 0 or not (np.isfinite(seconds) & (seconds > 0.0)).all():
        return []
    restarted = np.diff(numbers, prepend=numbers[0]) < 0
    detector = SlowPhaseDetector()
    told = (detector.update(s, restarted=r) for s, r in zip(seconds.tolist(), restarted.tolist(), strict=True))
    onsets = sorted({change.onset for change in told if change is not None})
    edges = [0, *onsets, len(seconds)]
    medians = [float(np.median(seconds[low:high])) for low, high in pairwise(edges) if high > low]
    levels = zip(onsets, pairwise(medians), strict=False)
    return [LevelChange(int(numbers[onset]), *pair) for onset, pair in levels]


def level_note(changes: Sequence[LevelChange]) -> str:
    """Note for readers of an answer that mixes the levels; empty where there is one level."""
    if not changes:
        return ""
    named = ", ".join(
        f"at step {one.step:,} from {format_s(one.before_s)} to {format_s(one.after_s)}" for one in changes[:MOST_NAMED]
    )
    more = f" and {len(changes) - MOST_NAMED} more" if len(changes) > MOST_NAMED else ""
    return (
        f"the level of the steps changes {named}{more}: what is said here mixes unlike steps. `prism-jax watch` shows the "
        "phases; leave out those that will not come again"
    )
