"""Seconds that the next steps of a run take, from the steps that are logged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ..._typing import Floats, Ints
from ...errors import DataError
from .law import DriftLaw, Variances, shipped_law
from .traits import Traits

FEWEST = 3  # entries that say anything
MOST_STEPS = 10**12


@dataclass(frozen=True)
class TimeLeft:
    """Law of the time of the next steps, without interruptions, evaluations and what else a log of steps leaves out.

    Attributes:
        n_steps: to come.
        independent_mean_s, independent_sd_s: what so many independent draws of the logged steps would say, which is too narrow.
    """

    n_steps: int
    log_middle: float
    variances: Variances
    law: DriftLaw
    independent_mean_s: float
    independent_sd_s: float

    def quantile_s(self, level: Floats | float) -> Floats:
        """Seconds at probabilities."""
        sd = sum(self.variances) ** 0.5
        return self.n_steps * np.exp(self.log_middle + sd * self.law.error(np.asarray(level)))

    def independent_quantile_s(self, level: Floats | float) -> Floats:
        """The same for independent draws: a normal law whose spread grows with the root of the number of steps."""
        return self.independent_mean_s + self.independent_sd_s * ndtri(level)


def time_left(step_s: Floats, n_per_entry: Ints, n_steps: int, law: DriftLaw | None = None) -> TimeLeft:
    """Law of the time of the next `n_steps` steps.

    Args:
        step_s: [entry] seconds per step, warm-up left out.
        n_per_entry: [entry] steps that an entry is a mean of.
        law: of drift; None: the shipped one.

    Raises:
        DataError: too few entries, or a number of steps out of range.

    Example:
        >>> steps = np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98])
        >>> bool(900.0 < time_left(steps, np.ones(6, int), 1000).quantile_s(0.5) < 1100.0)
        True
    """
    if len(step_s) < FEWEST:
        raise DataError(
            f"{len(step_s)} step times, but what is left is told from {FEWEST} at least. Give a longer log."
        )
    if not 1 <= n_steps <= MOST_STEPS:
        raise DataError(f"{n_steps:,} steps left, but it must be between 1 and {MOST_STEPS:,}")
    chosen = shipped_law() if law is None else law
    traits, per_entry = Traits.of(step_s), float(np.median(n_per_entry))
    n_later = n_steps / per_entry
    return TimeLeft(
        n_steps,
        float(np.log(traits.level_s) + chosen.location(traits)),
        chosen.variances(traits, n_later),
        chosen,
        n_steps * float(step_s.mean()),
        n_steps * float(step_s.std(ddof=1)) / n_later**0.5,
    )
