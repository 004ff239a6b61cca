"""Constant: a factor that is always one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..._typing import Floats
from .base import check_scale


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
        """The same; a constant has no spread to scale."""
        check_scale(k)
        return self


CONSTANT = Constant()
