"""Intervals that hold the estimate that is printed beside them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MedianInterval:
    """Median and 90 % interval."""

    median: float
    p5: float
    p95: float


def holding(estimate: float, low: float, high: float) -> tuple[float, float]:
    """The interval, widened as far as it takes to hold the estimate.

    Notes:
        An estimate at the mean of what a fit leaves open, and quantiles over draws of it, are unlike statistics of a curved
        function: where draws hardly differ, the estimate may lie outside. A wider interval covers at least as often.

    Example:
        >>> holding(2.0, 1.0, 1.5)
        (1.0, 2.0)
    """
    return min(low, estimate), max(high, estimate)
