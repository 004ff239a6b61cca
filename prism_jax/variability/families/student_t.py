"""StudentT: a factor with a power-law upper tail."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import Floats
from ..special import ndtr, stdtrit
from .base import Family, check_in_range, check_scale
from .constant import CONSTANT


@dataclass(frozen=True)
class StudentT:
    """`(1 + s |t|)^sign(t) / m` with `t` Student-t of `df` degrees of freedom and `m` the mean of the numerator.

    The upper half is the Student-t itself: P(factor > x) falls like x^-df, and the mean exists for df > 1. The lower half
    is its mirror image on the log scale, which keeps the factor positive: `1 + a` times slower is as likely as `1 + a`
    times faster. (A Student-t of the logarithm would have an infinite mean.)

    Attributes:
        scale_cv: `s`, scale of the bulk; the cv of the factor is larger and infinite for df <= 2.
        df: degrees of freedom, 1.1 to 200.
    """

    kind: ClassVar[str] = "student_t"
    is_normal: ClassVar[bool] = False

    scale_cv: float
    df: float

    def __post_init__(self) -> None:
        check_in_range(self, "scale_cv", 0.0, 2.0, open_low=True)
        check_in_range(self, "df", 1.1, 200.0, remedy="The mean of a Student-t does not exist for df <= 1")

    @property
    def cv(self) -> float:
        """Standard deviation over mean; inf with two degrees of freedom or fewer."""
        if self.df <= 2.0:
            return math.inf
        mean, second = _moments(self.scale_cv, self.df)
        return math.sqrt(max(second - mean * mean, 0.0)) / mean

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, in the shape of `z`: (1 + s |t|)^sign(t) at the t quantile of Phi(z), over its mean."""
        score = np.asarray(z, dtype=np.float64)
        size = 1.0 - self.scale_cv * stdtrit(self.df, ndtr(-np.abs(score)))
        return np.where(score > 0.0, size, 1.0 / size) / _moments(self.scale_cv, self.df)[0]

    def scaled(self, k: float) -> Family:
        """Student t with its scale times `k`; constant at zero."""
        check_scale(k)
        return StudentT(self.scale_cv * k, self.df) if self.scale_cv * k > 0.0 else CONSTANT


@lru_cache(maxsize=256)
def _moments(s: float, df: float) -> tuple[float, float]:
    """First and second moment of `(1 + s |t|)^sign(t)`.

    The upper half is closed form; the lower, bounded by one, by Gauss-Legendre quadrature over the angle `t = tan(theta)`.
    """
    half_mean_abs = 0.5 * _mean_abs(df)
    theta, weight = np.polynomial.legendre.leggauss(400)
    theta = 0.25 * math.pi * (theta + 1.0)
    t = np.tan(theta)
    log_density = math.lgamma(0.5 * (df + 1.0)) - math.lgamma(0.5 * df) - 0.5 * math.log(df * math.pi)
    density = np.exp(log_density - 0.5 * (df + 1.0) * np.log1p(t * t / df)) * (1.0 + t * t) * weight * 0.25 * math.pi
    lower_mean = float(density @ (1.0 / (1.0 + s * t)))
    lower_second = float(density @ (1.0 / (1.0 + s * t) ** 2))
    variance_t = df / (df - 2.0) if df > 2.0 else math.inf
    upper_second = 0.5 + 2.0 * s * half_mean_abs + 0.5 * s * s * variance_t
    return 0.5 + s * half_mean_abs + lower_mean, upper_second + lower_second


def _mean_abs(df: float) -> float:
    """E|t| = 2 sqrt(df / pi) Gamma((df + 1) / 2) / (Gamma(df / 2) (df - 1))."""
    return 2.0 * math.sqrt(df / math.pi) * math.exp(math.lgamma(0.5 * (df + 1.0)) - math.lgamma(0.5 * df)) / (df - 1.0)
