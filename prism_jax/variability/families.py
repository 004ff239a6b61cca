"""Families of slowdown factors with mean one: constant, log-normal, normal (cut off above zero), gamma, Student t."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Floats
from ..core.bounds import MOST_CV
from ..core.errors import Problem, SpecError
from ..core.lazy import special


@runtime_checkable
class Family(Protocol):
    """Distribution of a positive slowdown factor with mean one; a frozen dataclass of numbers, equal and hashable by value.

    Attributes:
        kind: name in configuration files: "log_normal".
        is_normal: whether the factor is a linear function of the score, so that sums of such factors are so again.
    """

    kind: ClassVar[str]
    is_normal: ClassVar[bool]

    @property
    def cv(self) -> float:
        """Standard deviation over mean; inf where the variance does not exist."""
        ...

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, i.e. at probability Phi(z); accurate in both tails to |z| = 8."""
        ...

    def scaled(self, k: float) -> Family:
        """Returns the same shape with its spread times `k >= 0`; `scaled(0)` is constant."""
        ...


def check_in_range(
    owner: object, name: str, low: float, high: float = math.inf, *, open_low: bool = False, remedy: str = ""
) -> None:
    """Raise unless `low <= owner.name <= high`, finite (`low <` where `open_low`).

    Raises:
        SpecError: with the value, the allowed range and `remedy`.
    """
    value, whose = getattr(owner, name), type(owner).__name__
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise SpecError.of(Problem(name, f"{value!r}, but it must be a number"), whose)
    inside = math.isfinite(value) and value <= high and (value > low if open_low else value >= low)
    if not inside:
        sign = ">" if open_low else ">="
        upper = "" if math.isinf(high) else f" and <= {high:g}"
        hint = f". {remedy}" if remedy else ""
        raise SpecError.of(Problem(name, f"{value:g}, but it must be {sign} {low:g}{upper}{hint}"), whose)


def check_scale(k: float) -> None:
    """Raise unless `k` can scale a spread.

    Raises:
        SpecError: `k` is negative or not finite.
    """
    if not (math.isfinite(k) and k >= 0.0):
        raise SpecError(f"spread scale = {k:g}, but it must be a finite number >= 0")


@dataclass(frozen=True)
class Constant:
    """No variation."""

    kind: ClassVar[str] = "constant"
    is_normal: ClassVar[bool] = False

    @property
    def cv(self) -> float:
        """Standard deviation over mean: 0."""
        return 0.0

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`: one, in the shape of `z`."""
        return np.ones_like(np.asarray(z, dtype=np.float64))

    def scaled(self, k: float) -> Constant:
        """Returns the constant itself: it has no spread to scale."""
        check_scale(k)
        return self


CONSTANT = Constant()


class ScaledByCv:
    """Families of one number, whose spread it is: scaled by scaling it, constant at zero."""

    cv: float

    def scaled(self, k: float) -> Family:
        """Returns the same family with its cv times `k`; constant at zero."""
        check_scale(k)
        own: Callable[[float], Family] = type(self)  # pyright: ignore[reportAssignmentType]  (a dataclass of `cv` alone)
        return own(self.cv * k) if self.cv * k > 0.0 else CONSTANT


@dataclass(frozen=True)
class LogNormal(ScaledByCv):
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


FLOOR = 1e-3  # keeps durations positive; below the 5e-7 quantile while cv <= 0.2
MAX_CV = 0.5


@dataclass(frozen=True)
class Normal(ScaledByCv):
    """`max(1 + cv z, 0.001) / m` with `m` the mean of the numerator, so that the mean is one.

    Attributes:
        cv: standard deviation over mean before the cut, 0 to 0.5. The cut lowers it by less than 1e-6 up to
            cv = 0.2 and by 3% at 0.5.
    """

    kind: ClassVar[str] = "normal"
    is_normal: ClassVar[bool] = True

    cv: float

    def __post_init__(self) -> None:
        check_in_range(self, "cv", 0.0, MAX_CV, remedy="Use log_normal or gamma for a wider spread")

    def ppf_normal(self, z: ArrayLike) -> Floats:
        """Factor at normal score `z`, in the shape of `z`: max(1 + cv z, floor) over its mean."""
        return np.maximum(1.0 + self.cv * np.asarray(z, dtype=np.float64), FLOOR) / self._mean_before()

    def _mean_before(self) -> float:
        """E[max(1 + cv z, floor)] = 1 + cv (phi(a) - a Phi(-a)) with a = (1 - floor) / cv."""
        if self.cv == 0.0:
            return 1.0
        a = (1.0 - FLOOR) / self.cv
        density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
        return 1.0 + self.cv * (density - a * float(special.ndtr(-a)))


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
        tail = special.ndtr(-np.abs(score))
        return np.where(score < 0.0, special.gammaincinv(shape, tail), special.gammainccinv(shape, tail)) / shape

    def scaled(self, k: float) -> Family:
        """Gamma with its cv times `k`; log-normal below the least cv of a gamma, constant at zero."""
        check_scale(k)
        cv = self.cv * k
        if cv >= MIN_CV:
            return Gamma(cv)
        return LogNormal(cv) if cv > 0.0 else CONSTANT


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
        size = 1.0 - self.scale_cv * special.stdtrit(self.df, special.ndtr(-np.abs(score)))
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
