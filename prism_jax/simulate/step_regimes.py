"""Factors that slow whole steps: independent between fleets, correlated from one step of a fleet to the next.

    z[0] = e[0]        z[t] = r z[t-1] + sqrt(1 - r^2) e[t]        factor[t] = map(z[t])

with independent standard normal e and the lag-1 autocorrelation r of the score (`Variability.step_ar1`). Every z is standard
normal, so that the distribution of a single step does not depend on r; that of a sum over the steps of a fleet does.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from .._typing import Floats
from ..variability.families import Family
from ..variability.score_map import NormalScoreMap


def step_regimes(step: Family, step_ar1: float, u: Floats) -> Floats:
    """Factors [fleet, step] of the steps of fleets, in the order of time.

    Args:
        step: family of the factor.
        step_ar1: lag-1 autocorrelation of its normal score, between -1 and 1.
        u: [fleet, step] independent uniforms in (0, 1); the first step of a fleet has the quantile u of the family.
    """
    score = ndtri(u)
    for t in range(1, score.shape[1]):
        score[:, t] = step_ar1 * score[:, t - 1] + np.sqrt(1.0 - step_ar1**2) * score[:, t]
    return NormalScoreMap.from_family(step)(score)
