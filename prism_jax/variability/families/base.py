"""What every family of slowdown factors offers, and the checks they share."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from ..._typing import Floats
from ...errors import Problem, SpecError


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
        """The same shape with its spread times `k >= 0`; `scaled(0)` is constant."""
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
