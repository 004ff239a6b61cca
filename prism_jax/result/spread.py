"""Estimates from independent batches of steps (mean, error, where fresh draws would fall), and spreads of allocations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Floats
from ..core.lazy import special

CONFIDENCE = 0.9


@dataclass(frozen=True)
class Gain:
    """Gain: the fall of the objective, in its unit.

    Attributes:
        value_s: on these draws.
        error_s: its standard error.
        low_s, high_s: between which 90% of estimates from as many fresh draws fall.
    """

    value_s: float
    error_s: float
    low_s: float
    high_s: float


def mean_and_error(of_batch: Floats) -> tuple[float, float]:
    """Mean of independent batches [batch] and its standard error.

    An estimate is the mean of its batches', so that differences between methods on the same draws are estimates like any other:
    the tail's noise, which they share, cancels batch by batch.
    """
    return float(of_batch.mean()), float(of_batch.std(ddof=1) / np.sqrt(len(of_batch)))


def fresh_interval(estimate: float, error: float, n_batch: int) -> tuple[float, float]:
    """Interval that holds 90% of estimates from as many fresh draws: both they and this estimate err."""
    half = float(special.stdtrit(n_batch - 1, 0.5 + 0.5 * CONFIDENCE)) * np.sqrt(2.0) * error
    return float(estimate - half), float(estimate + half)


def paired_gain(before: Floats, after: Floats) -> Gain:
    """Gain of the objective [batch] from one method to another, on the same draws."""
    value, error = mean_and_error(before - after)
    return Gain(value, error, *fresh_interval(value, error, len(before)))


@dataclass(frozen=True)
class AllocationSpread:
    """Spread of the step time within and between allocations.

    Attributes:
        std_s: standard deviation over allocations and steps, seconds.
        share: share of the variance that lies between allocations; not cut off, so that it may pass 1 by its error.
        share_error: Monte Carlo standard error of the share.
        p95_s: p95 of the steps within a typical allocation (one whose mean step is close to the median), seconds.
        p95_error_s: its Monte Carlo standard error, seconds.
    """

    std_s: float
    share: float
    share_error: float
    p95_s: float
    p95_error_s: float

    @property
    def between_s(self) -> float:
        """Standard deviation of an allocation's mean step over allocations, seconds."""
        return self.std_s * float(np.sqrt(np.clip(self.share, 0.0, 1.0)))

    @property
    def within_s(self) -> float:
        """Standard deviation from step to step within one allocation, seconds: root mean square over allocations."""
        return self.std_s * float(np.sqrt(np.clip(1.0 - self.share, 0.0, 1.0)))
