"""Families by name: the tagged union `{kind: gamma, cv: 0.02}` of configuration files, and back; with mixtures and pools."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Floats
from ..core.bounds import MOST_CV, MOST_SLOWDOWN
from ..core.errors import FieldPath, SpecError
from ..core.lazy import special
from ..core.registry import Registry, did_you_mean
from .families import CONSTANT, Constant, Family, Gamma, LogNormal, Normal, StudentT, check_in_range, check_scale


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
        """Factor at normal score `z`: the log tail probability by Newton's method between the two components' quantiles."""
        score = np.asarray(z, dtype=np.float64)
        (mu0, s0), (mu1, s1) = self._log_components()
        low = np.minimum(mu0 + s0 * score, mu1 + s1 * score)
        high = np.maximum(mu0 + s0 * score, mu1 + s1 * score)
        side = np.where(score < 0.0, 1.0, -1.0)  # work with whichever tail is small
        target = special.log_ndtr(side * score)
        log_p0, log_p1 = math.log1p(-self.slow_prob), math.log(self.slow_prob)
        found = 0.5 * (low + high)
        for _ in range(60):  # brackets are below 2^4 wide: as many halvings would reach the last bit
            u0, u1 = (found - mu0) / s0, (found - mu1) / s1
            log_tail = np.logaddexp(log_p0 + special.log_ndtr(side * u0), log_p1 + special.log_ndtr(side * u1))
            log_density = np.logaddexp(log_p0 - 0.5 * u0**2 - math.log(s0), log_p1 - 0.5 * u1**2 - math.log(s1))
            above = side * (log_tail - target)
            low, high = np.where(above < 0.0, found, low), np.where(above < 0.0, high, found)
            better = found - above * math.sqrt(2.0 * math.pi) * np.exp(np.minimum(log_tail - log_density, 99.0))
            better = np.where((better >= low) & (better <= high), better, 0.5 * (low + high))
            found, moved = better, np.abs(better - found)
            if moved.max(initial=0.0) < 1e-12:  # then the last step was far smaller than that
                break
        return np.exp(found)

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
        return np.interp(
            special.ndtr(np.asarray(z, dtype=np.float64)), (np.arange(n) + 0.5) / n, np.asarray(self.factors)
        )

    def scaled(self, k: float) -> Family:
        """Logarithms of the factors times `k`: stays positive, and to first order scales the spread."""
        check_scale(k)
        return Pool(tuple((np.asarray(self.factors) ** k).tolist())) if k > 0.0 else CONSTANT


SHIPPED: tuple[type[Family], ...] = (Constant, Normal, LogNormal, Gamma, StudentT, Mixture, Pool)
FAMILIES: Registry[type[Family]] = Registry("family", lambda: SHIPPED, name_of=lambda family: family.kind)


def family_from_dict(section: Mapping[str, Any] | float, where: FieldPath = ("family",)) -> Family:
    """The family a configuration section describes.

    Args:
        section: `kind` and the fields of that family; or a bare number, short for `{kind: log_normal, cv: number}`.
        where: path of the section in its file, for messages (("variability", "gemm", "gpu")).

    Raises:
        SpecError: unknown kind, unknown or missing field, or a value out of range; names the path.
    """
    if isinstance(section, (int, float)) and not isinstance(section, bool):
        section = {"kind": "log_normal", "cv": float(section)} if section else {"kind": "constant"}
    if not isinstance(section, Mapping):
        raise SpecError.at(
            where, f"{section!r} is not a family; write {{kind: log_normal, cv: 0.02}} or a number (its cv)"
        )
    if "kind" not in section:
        raise SpecError.at((*where, "kind"), f"missing; kinds are {', '.join(FAMILIES.names)}")
    kind = section["kind"]
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise SpecError.at((*where, "kind"), f"unknown {kind!r}{did_you_mean(kind, FAMILIES.names)}")
    given = {name: value for name, value in section.items() if name != "kind"}
    _check_fields(kind, given, where)
    plain = {name: _plain(value, (*where, name)) for name, value in given.items()}
    try:
        return CONSTANT if kind == "constant" else FAMILIES.named(kind)(**plain)
    except SpecError as error:
        raise SpecError.at(where, str(error)) from error


def family_to_dict(family: Family) -> dict[str, Any]:
    """The section that `family_from_dict` turns back into `family`."""
    kind = type(family).kind
    if kind not in FAMILIES or FAMILIES.named(kind) is not type(family):
        raise SpecError(f"{type(family).__name__} is not a registered family; kinds are {', '.join(FAMILIES.names)}")
    plain = asdict(family)  # pyright: ignore[reportArgumentType]
    return {"kind": kind} | {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}


def family_fields(kind: str) -> tuple[Field[Any], ...]:
    """The fields that a section of `kind` may have.

    Raises:
        SpecError: the kind is unknown.
    """
    return fields(FAMILIES.named(kind))  # pyright: ignore[reportArgumentType]


def _check_fields(kind: str, given: Mapping[str, Any], where: FieldPath) -> None:
    names = [f.name for f in family_fields(kind)]
    for name in given:
        if name not in names:
            raise SpecError.at((*where, name), f"unknown field of {kind}{did_you_mean(name, names)}")
    needed = [f.name for f in family_fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    if missing:
        raise SpecError.at((*where, missing[0]), f"missing; {kind} needs {', '.join(needed)}")


def _plain(value: Any, where: FieldPath) -> float | tuple[float, ...]:
    entries = value if isinstance(value, (list, tuple)) else (value,)
    for entry in entries:
        if isinstance(entry, bool) or not isinstance(entry, (int, float)):
            raise SpecError.at(where, f"{entry!r} is not a number")
    return tuple(float(entry) for entry in value) if isinstance(value, (list, tuple)) else float(value)
