"""LogNormal: a factor whose logarithm is normal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import Floats
from ...bounds import MOST_CV
from .base import Family, check_in_range, check_scale
from .constant import CONSTANT


@dataclass(frozen=True)
class LogNormal:
    """`exp(s z - s^2 / 2)` with `s^2 = log(1 + cv^2)`.

    Attributes:
        cv: standard deviation over mean, 0 to 10.
    """

    kind: ClassVar[str] = "log_normal"
    is_normal: ClassVar[bool] = False

    cv: float

    def __post_init__(self) -> None:
        check_in_range(self, "cv", 0.0, MOST_CV)

    @property
    def log_sd(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(math.log1p(self.cv * self.cv))

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, in the shape of `z`: exp(s z - s^2 / 2) with the log standard deviation s."""
        s = self.log_sd
        return np.exp(s * np.asarray(z, dtype=np.float64) - 0.5 * s * s)

    def scaled(self, k: float) -> Family:
        """Log-normal with its cv times `k`; constant at zero."""
        check_scale(k)
        return LogNormal(self.cv * k) if self.cv * k > 0.0 else CONSTANT
