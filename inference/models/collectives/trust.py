"""Weights of measured cells: small for those far off the curve through their neighbours in size.

An outlier of a log is one size, such as 64 kB among 30, that lies far from what the sizes around it say; a knee is not, as the
sizes behind it lie beyond it too. The running median keeps knees and leaves outliers out.

    weight = (df + 1) / (df + (distance / scale)^2),    scale = 1.48 median |distance|,

the weight that a Student-t law gives (Lange et al., Robust statistical modeling using the t distribution, JASA 84, 1989).
"""

from __future__ import annotations

import numpy as np

from prism_jax._typing import Floats

from .knots import Ints

DF = 4.0
NEIGHBOURS = 2  # on either side
SMALLEST_SCALE = 1e-3  # of log seconds: nccl-tests prints two to four digits
NORMAL_OF_MEDIAN = 1.4826


def trusts(curve: Ints, config: Ints, n_bytes: Floats, log_s: Floats) -> Floats:
    """Weight of every cell [cell], from its distance to the running median of its curve and configuration."""
    apart = np.zeros(len(log_s))
    for one in np.unique(np.stack([curve, config], axis=1), axis=0):
        here = np.flatnonzero((curve == one[0]) & (config == one[1]))
        here = here[np.argsort(n_bytes[here])]
        apart[here] = _apart(np.log(n_bytes[here]), log_s[here])
    scale = max(NORMAL_OF_MEDIAN * float(np.median(np.abs(apart))), SMALLEST_SCALE)
    return (DF + 1.0) / (DF + (apart / scale) ** 2)


def _apart(log_bytes: Floats, log_s: Floats) -> Floats:
    """Distance of each value from the median of the slopes' line through its neighbours; zero where there are too few."""
    n = len(log_s)
    if n < 2 * NEIGHBOURS + 1:
        return np.zeros(n)
    out = np.zeros(n)
    for i in range(n):
        low = min(max(i - NEIGHBOURS, 0), n - 2 * NEIGHBOURS - 1)
        x, y = log_bytes[low : low + 2 * NEIGHBOURS + 1], log_s[low : low + 2 * NEIGHBOURS + 1]
        slope = np.median([(y[b] - y[a]) / (x[b] - x[a]) for a in range(len(x)) for b in range(a)])
        out[i] = log_s[i] - log_bytes[i] * slope - np.median(y - slope * x)
    return out
