"""Normal: a symmetric factor, cut off at a small positive floor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import Floats
from ..special import ndtr
from .base import Family, check_in_range, check_scale
from .constant import CONSTANT

FLOOR = 1e-3  # keeps durations positive; below the 5e-7 quantile while cv <= 0.2
MAX_CV = 0.5


@dataclass(frozen=True)
class Normal:
    """`max(1 + cv z, 0.001) / m` with `m` the mean of the numerator, so that the mean is one.

    Attributes:
        cv: standard deviation over mean before the cut, 0 to 0.5. The cut lowers it by less than 1e-6 up to
            cv = 0.2 and by 3 % at 0.5.
    """

    kind: ClassVar[str] = "normal"
    is_normal: ClassVar[bool] = True

    cv: float

    def __post_init__(self) -> None:
        check_in_range(self, "cv", 0.0, MAX_CV, remedy="Use log_normal or gamma for a wider spread")

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, in the shape of `z`: max(1 + cv z, floor) over its mean."""
        return np.maximum(1.0 + self.cv * np.asarray(z, dtype=np.float64), FLOOR) / self._mean_before()

    def scaled(self, k: float) -> Family:
        """Normal with its cv times `k`; constant at zero."""
        check_scale(k)
        return Normal(self.cv * k) if self.cv * k > 0.0 else CONSTANT

    def _mean_before(self) -> float:
        """E[max(1 + cv z, floor)] = 1 + cv (phi(a) - a Phi(-a)) with a = (1 - floor) / cv."""
        if self.cv == 0.0:
            return 1.0
        a = (1.0 - FLOOR) / self.cv
        density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        return 1.0 + self.cv * (density - a * float(ndtr(-a)))
