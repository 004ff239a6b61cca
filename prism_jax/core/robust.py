"""Estimates the spread of numbers of which some lie far away."""

from __future__ import annotations

import numpy as np

from .arrays import Floats

MAD_SD = 1.4826  # standard deviation of a normal law over its median absolute deviation: 1 / (quantile of 3/4)


def robust_sd(values: Floats, middle: float | None = None) -> float:
    """Estimates the standard deviation of the bulk of `values`, from their median distance to `middle`.

    Args:
        values: [n], at least one, none of them NaN.
        middle: what they scatter around; their median by default.

    Example:
        >>> round(robust_sd(np.array([-1.0, 0.0, 1.0, 100.0, -100.0])), 4)
        1.4826
    """
    centre = np.median(values) if middle is None else middle
    return MAD_SD * float(np.median(np.abs(values - centre)))
