"""Pool: measured factors, resampled through a piecewise-linear quantile function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import Floats
from ...errors import SpecError
from ..special import ndtr
from .base import Family, check_scale
from .constant import CONSTANT


@dataclass(frozen=True)
class Pool:
    """Empirical factors, kept sorted and divided by their mean.

    The quantile function is linear between `(i + 1/2) / n -> factors[i]` and flat beyond the ends, so its mean is the mean of the
    factors exactly, and no draw leaves the measured range: a pool says nothing about tails rarer than 1 / n.

    Attributes:
        factors: positive measurements in any unit, at least two.
    """

    kind: ClassVar[str] = "pool"
    is_normal: ClassVar[bool] = False

    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        values = np.sort(np.asarray(self.factors, dtype=np.float64).ravel())
        if values.size < 2:
            raise SpecError(f"Pool: {values.size} factors, but at least 2 are needed. Use constant for no variation")
        if not np.all(np.isfinite(values)) or values[0] <= 0.0:
            raise SpecError(f"Pool: factors must be finite and > 0, but they span {values[0]:g} to {values[-1]:g}")
        mean = float(values.mean())
        if abs(mean - 1.0) > 1e-12:  # otherwise normalising again would change the last bit and so the identity
            values = values / mean
        object.__setattr__(self, "factors", tuple(values.tolist()))

    @property
    def cv(self) -> float:
        """Standard deviation over mean of the interpolated factors."""
        a, b = np.asarray(self.factors[:-1]), np.asarray(self.factors[1:])
        ends = 0.5 * (self.factors[0] ** 2 + self.factors[-1] ** 2)
        second = (float(np.sum(a * a + a * b + b * b)) / 3.0 + ends) / len(self.factors)
        return math.sqrt(max(second - 1.0, 0.0))

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, in the shape of `z`: factors interpolated at Phi(z), flat beyond the ends."""
        n = len(self.factors)
        return np.interp(ndtr(np.asarray(z, dtype=np.float64)), (np.arange(n) + 0.5) / n, np.asarray(self.factors))

    def scaled(self, k: float) -> Family:
        """Logarithms of the factors times `k`: stays positive, and to first order scales the spread."""
        check_scale(k)
        return Pool(tuple((np.asarray(self.factors) ** k).tolist())) if k > 0.0 else CONSTANT
