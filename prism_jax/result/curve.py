"""The curve of a step time distribution (seconds): quantiles with their errors, small enough to be kept in a report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.errors import DataError
from ..core.readable import short_numbers
from .distribution import Guarantee, StepTimeDistribution

LEVELS = np.round(np.concatenate([np.linspace(0.001, 0.99, 200), np.linspace(0.99, 0.9995, 40)[1:], [0.5, 0.95]]), 6)
ROUNDING = 1e-6  # relative; a smaller range is float32 noise


@dataclass(frozen=True)
class StepCurve:
    """Quantiles of the step time, as a picture needs them.

    Attributes:
        level: probabilities, ascending.
        time_s, error_s: quantiles and their Monte Carlo standard errors.
        deterministic_s: the step without variability.
        bound: of the p95; None where too little was simulated for one.
    """

    level: tuple[float, ...]
    time_s: tuple[float, ...]
    error_s: tuple[float, ...]
    deterministic_s: float
    bound: Guarantee | None = None

    @property
    def is_constant(self) -> bool:
        """Whether every step takes the same time."""
        return self.time_s[-1] - self.time_s[0] <= ROUNDING * self.time_s[0]

    def at(self, p: float) -> float:
        """The quantile `p`, between levels linear."""
        return float(np.interp(p, self.level, self.time_s))

    def error_at(self, p: float) -> float:
        """The standard error of the quantile `p`, between levels linear."""
        return float(np.interp(p, self.level, self.error_s))


def step_curve(distribution: StepTimeDistribution, bound: Guarantee | None = None) -> StepCurve:
    """Reads the curve off a distribution.

    Args:
        distribution: what `predict` returns.
        bound: in the place of the distribution's own guarantee.
    """
    level = np.unique(LEVELS)
    if bound is None:
        try:
            bound = distribution.guarantee()
        except DataError:  # too few samples for one
            bound = None
    times, errors = zip(*((distribution.quantile(p), distribution.mc_error(p)) for p in level), strict=True)
    return StepCurve(
        tuple(map(float, level)), short_numbers(times), short_numbers(errors), distribution.deterministic_s, bound
    )
