"""Weights of measured cells: small for those far off what their neighbours in size say.

An outlier of a log is one size, such as 64 kB among 30, that lies far from the line through its two neighbours and also from
the lines that go on from the sizes below and above it. A knee or a jump is none: there one side still agrees. With the smallest
of the three distances,

    weight = (df + 1) / (df + (distance / scale)^2),

the weight that a Student-t law gives (Lange et al., Robust statistical modeling using the t distribution, JASA 84, 1989); `scale`
is the spread of cells, from the median distance of all.
"""

from __future__ import annotations

import numpy as np

from prism_jax._typing import Floats

from .knots import Ints

DF = 4.0
FEWEST = 4  # sizes, for a cell to have neighbours on either side
SPREAD_OF_MEDIAN = 1.75  # spread of normal cells on a line over the median of their distances
SMALLEST_SPREAD = 1e-3  # of log seconds: nccl-tests prints two to four digits


def trusts(curve: Ints, config: Ints, n_bytes: Floats, log_s: Floats) -> Floats:
    """Weight of every cell [cell], from its neighbours on its curve in its configuration."""
    apart = np.zeros(len(log_s))
    for one in np.unique(np.stack([curve, config], axis=1), axis=0):
        here = np.flatnonzero((curve == one[0]) & (config == one[1]))
        here = here[np.argsort(n_bytes[here])]
        apart[here] = _apart(np.log(n_bytes[here]), log_s[here])
    spread = max(SPREAD_OF_MEDIAN * float(np.median(apart)), SMALLEST_SPREAD)
    return (DF + 1.0) / (DF + (apart / spread) ** 2)


def _apart(x: Floats, y: Floats) -> Floats:
    """Distance of each value from the nearest of three lines through two neighbours; zero where there are too few."""
    if len(x) < FEWEST:
        return np.zeros(len(x))
    number = np.arange(len(x))
    found = np.full(len(x), np.inf)
    for one, other in ((-1, 1), (-2, -1), (1, 2)):
        a, b = number + one, number + other
        known = (a >= 0) & (b < len(x))
        a, b, at = a[known], b[known], number[known]
        line = y[a] + (y[b] - y[a]) * (x[at] - x[a]) / (x[b] - x[a])
        found[known] = np.minimum(found[known], np.abs(y[at] - line))
    return found
