"""Draws of spells: Weibull, log-normal or two log-normals, from their start or given the age that they have reached.

All have the log median (of the mixture: the mean of log times) and the standard deviation of log times as parameters.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from ..._typing import Counts, Floats

MIXTURES = ((0.5, 1.6), (0.3, 1.8), (0.7, 1.8))
"""Shapes of two log-normals: share of the short spells, and how far apart the two are, in standard deviations of all."""
WEIBULL, LOG_NORMAL = 0, 1
"""Numbers of laws; 2 and above are `MIXTURES`."""
N_LAWS = 2 + len(MIXTURES)
LONGEST_LOG_S = 22.0  # a century
EULER = np.pi / np.sqrt(6.0)  # standard deviation of log times of shape 1
LOG_LOG_2 = float(np.log(np.log(2.0)))


def components(theta: Floats, share: float, apart: float) -> tuple[Floats, Floats, Floats]:
    """Means of the short and of the long part, and the standard deviation inside each, of log times; each [...].

    Args:
        theta: mean of log seconds, and log of their standard deviation, [..., 2].
    """
    sd = np.exp(theta[..., 1])
    low = theta[..., 0] - (1.0 - share) * apart * sd
    return low, low + apart * sd, sd * np.sqrt(1.0 - share * (1.0 - share) * apart**2)


def draw(law: Counts, theta: Floats, age_s: Floats | float, rng: np.random.Generator) -> Floats:
    """Whole lengths in seconds of spells that have reached `age_s`, [...].

    Args:
        law: `WEIBULL`, `LOG_NORMAL` or a mixture, [...].
        theta: log median (mean of log seconds) and log standard deviation of log seconds, [..., 2].
        age_s: broadcasts against [...]; 0: a new spell.

    Notes:
        Two uniform numbers are used per spell whatever its law, so that laws are compared under the same draws.
    """
    first, second = rng.random((2, *np.shape(law)))
    with np.errstate(divide="ignore"):
        log_age = np.log(np.broadcast_to(np.asarray(age_s, dtype=float), np.shape(law)))
    log_s = np.where(law == WEIBULL, _weibull(theta, log_age, second), 0.0)
    log_s = np.where(law == LOG_NORMAL, _normal(theta[..., 0], np.exp(theta[..., 1]), log_age, second), log_s)
    for number, (share, apart) in enumerate(MIXTURES):
        if (law == 2 + number).any():
            low, high, inner = components(theta, share, apart)
            short = share * ndtr((low - log_age) / inner)
            long = (1.0 - share) * ndtr((high - log_age) / inner)
            is_short = first * (short + long) < short
            log_s = np.where(law == 2 + number, _normal(np.where(is_short, low, high), inner, log_age, second), log_s)
    return np.exp(np.minimum(np.maximum(log_s, log_age), LONGEST_LOG_S))


def _log_hazard(theta: Floats, log_s: Floats) -> Floats:
    """Log of the cumulated hazard of the Weibull law."""
    return LOG_LOG_2 + EULER / np.exp(theta[..., 1]) * (log_s - theta[..., 0])


def _weibull(theta: Floats, log_age: Floats, uniform: Floats) -> Floats:
    with np.errstate(over="ignore"):
        reached = np.exp(np.minimum(_log_hazard(theta, log_age), 700.0))
    log_hazard = np.log(reached - np.log1p(-uniform) + 1e-300)
    return theta[..., 0] + (log_hazard - LOG_LOG_2) * np.exp(theta[..., 1]) / EULER


def _normal(mean: Floats, sd: Floats, log_age: Floats, uniform: Floats) -> Floats:
    """In the upper tail, which is where spells that have lasted are."""
    beyond = ndtr((mean - log_age) / sd)
    return mean - sd * ndtri(np.clip(beyond * (1.0 - uniform), 1e-300, 1.0 - 1e-16))
