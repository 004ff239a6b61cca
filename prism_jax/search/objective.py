"""Objective: what a search minimises about the distribution of the step time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._typing import Floats
from ..errors import DataError
from ..hints import did_you_mean

NAMES = ("mean", "p50", "p90", "p95", "p99", "cvar95")


@dataclass(frozen=True)
class Objective:
    """A number of a distribution, in seconds; smaller is better.

    Attributes:
        name: mean; pNN, a quantile; cvarNN, the mean of what lies beyond it.
    """

    name: str = "p95"

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise DataError(
                f"objective = {self.name!r} is unknown{did_you_mean(self.name, NAMES)}; known: {', '.join(NAMES)}"
            )

    def of(self, samples_s: Floats) -> Floats:
        """Value of sorted, equally likely samples [..., sample]."""
        if self.name == "mean":
            return samples_s.mean(axis=-1)
        level = float(self.name.removeprefix("cvar").removeprefix("p")) / 100.0
        if self.name.startswith("p"):
            return np.quantile(samples_s, level, axis=-1)
        return samples_s[..., int(samples_s.shape[-1] * level) :].mean(axis=-1)
