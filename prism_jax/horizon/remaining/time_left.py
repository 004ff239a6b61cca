"""Seconds that the next steps of a run take, from the steps that are logged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from ..._typing import Floats, Ints
from ...errors import DataError
from .law import DriftLaw, shipped_law
from .traits import Traits

FEWEST = 3  # entries that say anything
MOST_STEPS = 10**12
LEVELS = 0.05, 0.5, 0.95


@dataclass(frozen=True)
class TimeLeft:
    """Seconds of the steps to come; interruptions and evaluations are not in it.

    Attributes:
        n_steps: steps to come.
        p5_s, p50_s, p95_s: quantiles.
        variance_shares: what the interval is made of: drift (of a run's level), steps (their scatter), stalls, change (between
            the halves of the log); sums to one.
        independent_p5_s, independent_p95_s: if steps were independent draws, which is too narrow.
        law: where the drift is from.
    """

    n_steps: int
    p5_s: float
    p50_s: float
    p95_s: float
    variance_shares: Mapping[str, float]
    independent_p5_s: float
    independent_p95_s: float
    law: str


def time_left(step_s: Floats, n_per_entry: Ints, n_steps: int, law: DriftLaw | None = None) -> TimeLeft:
    """Quantiles of the time of the next `n_steps` steps.

    Args:
        step_s: [entry] seconds per step, warm-up left out.
        n_per_entry: [entry] steps that an entry is a mean of.
        law: of drift; None: the shipped one.

    Raises:
        DataError: too few entries, or a number of steps out of range.

    Example:
        >>> steps = np.array([1.0, 1.01, 0.99, 1.0, 1.02, 0.98])
        >>> bool(900.0 < time_left(steps, np.ones(6, int), 1000).p50_s < 1100.0)
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
    variances = chosen.variances(traits, n_later)
    sd = sum(variances) ** 0.5
    log_s = float(np.log(traits.level_s) + chosen.location(traits)) + sd * chosen.error(np.array(LEVELS))
    low_s, middle_s, high_s = (n_steps * np.exp(log_s)).tolist()
    mean_s, sd_s = n_steps * float(step_s.mean()), n_steps * float(step_s.std(ddof=1)) / n_later**0.5
    return TimeLeft(
        n_steps=n_steps,
        p5_s=low_s,
        p50_s=middle_s,
        p95_s=high_s,
        variance_shares={name: float(part / sum(variances)) for name, part in variances._asdict().items()},
        independent_p5_s=float(mean_s + sd_s * ndtri(LEVELS[0])),
        independent_p95_s=float(mean_s + sd_s * ndtri(LEVELS[-1])),
        law=chosen.source,
    )
