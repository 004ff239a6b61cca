"""Gamma: a right-skewed factor with location zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import Floats
from ..special import gammainccinv, gammaincinv, ndtr
from .base import Family, check_in_range, check_scale
from .constant import CONSTANT
from .log_normal import LogNormal

MIN_CV = 1e-3  # above shape 1 / cv^2 = 1e6 the inverse incomplete gamma functions lose monotonicity (seen at cv 3e-4)


@dataclass(frozen=True)
class Gamma:
    """Shape `1 / cv^2`, scale `cv^2`, location 0 (a free location does not fit measured kernels).

    Attributes:
        cv: standard deviation over mean, 0.001 to 5.
    """

    kind: ClassVar[str] = "gamma"
    is_normal: ClassVar[bool] = False

    cv: float

    def __post_init__(self) -> None:
        check_in_range(
            self, "cv", MIN_CV, 5.0, remedy="Use log_normal for a smaller spread, the difference is below cv^2"
        )

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, in the shape of `z`: the quantile of Gamma(1 / cv^2) at Phi(z), over its mean."""
        # Each half through its own tail probability, so that neither loses digits to 1 - p.
        score = np.asarray(z, dtype=np.float64)
        shape = 1.0 / (self.cv * self.cv)
        tail = ndtr(-np.abs(score))
        return np.where(score < 0.0, gammaincinv(shape, tail), gammainccinv(shape, tail)) / shape

    def scaled(self, k: float) -> Family:
        """Gamma with its cv times `k`; log-normal below the least cv of a gamma, constant at zero."""
        check_scale(k)
        cv = self.cv * k
        if cv >= MIN_CV:
            return Gamma(cv)
        return LogNormal(cv) if cv > 0.0 else CONSTANT
