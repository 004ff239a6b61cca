"""Levels of recorded step times, in phases or in turns, for whoever takes all steps of a recording for one law."""

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
MIXES = "what is said here mixes unlike steps"  # in notes on several levels
FEWEST_STEPS = 60  # of which two levels are told
SMALLEST_SHARE, SMALLEST_RATIO = 0.1, 1.01  # of the steps at a level; of one level over the other
FEWEST_VALUES = 5  # unlike ones at each level: fewer are ticks of a coarse clock
TAILS = 0.02  # on either side, which are drawn in, so that stalls are no level
APART, APART_OF_FEW = 4.0, 10.0  # Ashman's D from which levels are told, and what is added over the root of the steps


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
        f"the level of the steps changes {named}{more}: {MIXES}. `prism-jax watch` shows the "
        "phases; leave out those that will not come again"
    )


def otsu_split(ordered: Floats) -> int:
    """Number of values in the lower of two classes that have most variance between them; equal values stay together.

    Args:
        ordered: [value] ascending; at least two that differ.

    Source: Otsu, A Threshold Selection Method from Gray-Level Histograms (1979), doi 10.1109/TSMC.1979.4310076.
    """
    n = len(ordered)
    below, sums = np.arange(1, n), np.cumsum(ordered)[:-1]
    between = (sums - below * ordered.mean()) ** 2 / (below * (n - below))
    between[ordered[1:] == ordered[:-1]] = -1.0
    return int(between.argmax()) + 1


class AlternatingLevels(NamedTuple):
    """Two levels that steps take in turns: typical seconds of both, and the share (0-1) of the steps at the slower one."""

    low_s: float
    high_s: float
    share: float


def two_levels(step_s: Floats | Sequence[float]) -> AlternatingLevels | None:
    """Two levels of a series of step times, wherever in time they are; None where one law may hold for all.

    Args:
        step_s: [entry] seconds, positive.

    Notes:
        Otsu's threshold (`otsu_split`) splits the logarithms; the parts are levels where their means lie
        far apart: Ashman's D = sqrt(2) |m1 - m2| / sqrt(s1^2 + s2^2), which is 2.7 for halves of a normal law and 3.5 for those
        of a uniform one, exceeds 4 + 10 / sqrt(n). Of 8,400 series at one level (seven laws, 60 to 1,000 steps, one with
        a lag-one correlation of 0.9) 4 were called two; levels seven standard deviations apart are found in 48 of 50.
    """
    seconds = np.asarray(step_s, dtype=np.float64)
    n = len(seconds)
    if n < FEWEST_STEPS or not (np.isfinite(seconds) & (seconds > 0.0)).all():
        return None
    ordered = np.sort(np.log(seconds))
    drawn_in = np.clip(ordered, *np.quantile(ordered, (TAILS, 1.0 - TAILS)))
    at = otsu_split(drawn_in)
    parts = drawn_in[:at], drawn_in[at:]
    apart = parts[1].mean() - parts[0].mean()
    separation = np.sqrt(2.0) * apart / max(float(np.sqrt(parts[0].var() + parts[1].var())), 1e-12)
    share = 1.0 - at / n
    is_told = (
        separation > APART + APART_OF_FEW / np.sqrt(n)
        and SMALLEST_SHARE <= share <= 1.0 - SMALLEST_SHARE
        and apart > np.log(SMALLEST_RATIO)
        and min(len(np.unique(own)) for own in parts) >= FEWEST_VALUES
    )
    low_s, high_s = (float(np.exp(np.median(own))) for own in parts)
    return AlternatingLevels(low_s, high_s, share) if is_told else None


def two_levels_note(found: AlternatingLevels | None) -> str:
    """Note for readers of an answer that mixes both levels; empty where there is one."""
    if found is None:
        return ""
    more = f"{found.share:.0%} of the steps take {format_s(found.high_s)}, the others {format_s(found.low_s)}"
    return f"the steps have two levels, {more}: {MIXES}. Tell them apart (evaluation? saving? other jobs?), or fit each"


def levels_note(step_s: Floats | Sequence[float], steps: ArrayLike | None = None) -> str:
    """Note on several levels, in turns or in phases; empty where there is one.

    Args:
        step_s, steps: as in `level_changes`.
    """
    found = two_levels(step_s)
    if found is not None:
        is_slow = np.asarray(step_s) > np.sqrt(found.low_s * found.high_s)
        in_random_order = 2.0 * found.share * (1.0 - found.share) * len(is_slow)
        if np.count_nonzero(np.diff(is_slow)) > 0.5 * in_random_order:
            return two_levels_note(found)
    return level_note(level_changes(step_s, steps)) or two_levels_note(found)
