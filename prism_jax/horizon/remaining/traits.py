"""What the first steps of a run show that bears on the later ones: level, scatter, stalls, and a change among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._typing import Floats
from ..slow_phases.detector import StepNoise

ORDINARY_SDS = 3.0  # from the median: farther steps do not move the level
LONGEST_STALL = 2.0  # times the level: what is longer counts as that long


class Traits(NamedTuple):
    """Of a log, or [log] of several.

    Attributes:
        n: entries.
        level_s: mean seconds of ordinary steps.
        log_sd, ar1: robust spread of ordinary steps, a share, and their lag-1 correlation.
        stalls: what steps longer than ordinary ones add to the mean, logarithm.
        change: between the level of the first half and that of the second, logarithm, without sign.
    """

    n: Floats | float
    level_s: Floats | float
    log_sd: Floats | float
    ar1: Floats | float
    stalls: Floats | float
    change: Floats | float

    @classmethod
    def of(cls, step_s: Floats) -> Traits:
        """Of one log.

        Args:
            step_s: [entry] seconds per step, warm-up left out; two at least.
        """
        log_s = np.log(step_s)
        noise = StepNoise.learnt(log_s)
        log_level = float(np.log(np.exp(_ordinary(log_s, noise)).mean()))
        stalls = float(np.log(np.minimum(np.exp(log_s - log_level), LONGEST_STALL).mean()))
        half = max(-(-len(log_s) // 2), min(3, len(log_s)))
        change = abs(float(_ordinary(log_s[:half], noise).mean() - _ordinary(log_s[-half:], noise).mean()))
        return cls(float(len(log_s)), float(np.exp(log_level)), noise.log_sd, noise.ar1, max(stalls, 0.0), change)

    @classmethod
    def stacked(cls, logs: list[Traits]) -> Traits:
        """Of several logs; every attribute is [log]."""
        return cls(*np.array(logs).T)


def _ordinary(log_s: Floats, noise: StepNoise) -> Floats:
    """Logarithms with those of other than ordinary steps moved to the edge."""
    middle, reach = np.median(log_s), ORDINARY_SDS * noise.log_sd
    return np.clip(log_s, middle - reach, middle + reach)
