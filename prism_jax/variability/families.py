"""Families of slowdown factors, each with mean one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class Family(Protocol):
    """Distribution of a positive slowdown factor with mean one."""

    @property
    def cv(self) -> float:
        """Standard deviation over mean; inf where the variance does not exist."""
        ...

    def ppf_normal(self, z: ArrayLike) -> Array:
        """Factor at normal score `z`, i.e. at probability Phi(z); accurate in both tails."""
        ...


@dataclass(frozen=True)
class Constant:
    """No variation."""

    @property
    def cv(self) -> float:
        return 0.0

    def ppf_normal(self, z: ArrayLike) -> Array:
        return np.ones_like(np.asarray(z, dtype=np.float64))


CONSTANT = Constant()
