"""Mixture: a bulk and a slower component, for fleets with slow chips and networks with congested steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import Floats
from ...bounds import MOST_CV, MOST_SLOWDOWN
from ..special import log_ndtr
from .base import Family, check_in_range, check_scale
from .constant import CONSTANT
from .log_normal import LogNormal


@dataclass(frozen=True)
class Mixture:
    """LogNormal bulk with probability `1 - slow_prob`, LogNormal slow component otherwise; overall mean one.

    Attributes:
        bulk_cv: cv of the bulk, above 0, at most 10.
        slow_prob: probability of the slow component, 0 to 1 exclusive.
        slow_factor: mean of the slow component over the mean of the bulk, 1 to 1000.
        slow_cv: cv of the slow component, above 0, at most 10.
    """

    kind: ClassVar[str] = "mixture"
    is_normal: ClassVar[bool] = False

    bulk_cv: float
    slow_prob: float
    slow_factor: float
    slow_cv: float

    def __post_init__(self) -> None:
        check_in_range(self, "bulk_cv", 0.0, MOST_CV, open_low=True)
        check_in_range(self, "slow_cv", 0.0, MOST_CV, open_low=True)
        check_in_range(self, "slow_prob", 0.0, 0.999, open_low=True, remedy="Use log_normal for a single component")
        check_in_range(self, "slow_factor", 1.0, MOST_SLOWDOWN)

    @property
    def bulk_mean(self) -> float:
        """Mean of the bulk component; below one."""
        return 1.0 / (1.0 + self.slow_prob * (self.slow_factor - 1.0))

    @property
    def cv(self) -> float:
        """Standard deviation over mean, from the spread within and between bulk and slow."""
        p, bulk, slow = self.slow_prob, self.bulk_mean, self.bulk_mean * self.slow_factor
        within = (1.0 - p) * (bulk * self.bulk_cv) ** 2 + p * (slow * self.slow_cv) ** 2
        between = p * (1.0 - p) * (slow - bulk) ** 2
        return math.sqrt(within + between)

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, by bisection of the log tail probability between the two components' quantiles."""
        score = np.asarray(z, dtype=np.float64)
        (mu0, s0), (mu1, s1) = self._log_components()
        low = np.minimum(mu0 + s0 * score, mu1 + s1 * score)
        high = np.maximum(mu0 + s0 * score, mu1 + s1 * score)
        side = np.where(score < 0.0, 1.0, -1.0)  # work with whichever tail is small
        target = log_ndtr(side * score)
        log_p0, log_p1 = math.log1p(-self.slow_prob), math.log(self.slow_prob)
        for _ in range(60):  # brackets are below 2^4 wide: 60 halvings reach the last bit
            middle = 0.5 * (low + high)
            log_tail = np.logaddexp(
                log_p0 + log_ndtr(side * (middle - mu0) / s0), log_p1 + log_ndtr(side * (middle - mu1) / s1)
            )
            too_low = np.where(side > 0.0, log_tail < target, log_tail > target)
            low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
        return np.exp(0.5 * (low + high))

    def scaled(self, k: float) -> Family:
        """Spreads of both components and their distance times `k`."""
        check_scale(k)
        if k == 0.0:
            return CONSTANT
        slow_factor = 1.0 + k * (self.slow_factor - 1.0)
        return Mixture(self.bulk_cv * k, self.slow_prob, slow_factor, self.slow_cv * k)

    def _log_components(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """(mean, standard deviation) of the logarithm of each component."""
        s0, s1 = LogNormal(self.bulk_cv).log_sd, LogNormal(self.slow_cv).log_sd
        mu0 = math.log(self.bulk_mean) - 0.5 * s0 * s0
        mu1 = math.log(self.bulk_mean * self.slow_factor) - 0.5 * s1 * s1
        return (mu0, s0), (mu1, s1)
