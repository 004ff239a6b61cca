"""Laws of spells: log probability of counted times at many parameters at once.

Every law has the two parameters of `repairs.laws`, log median in seconds and log standard deviation of log times, so that one
population holds zones under each of them. A family is one or more laws; the mixture is three shapes of two log-normals:

    log t ~ share Normal(mu - (1 - share) apart sd, inner) + (1 - share) Normal(mu + share apart sd, inner),
    inner^2 = sd^2 (1 - share (1 - share) apart^2),    mu the mean of log t (theta[0]), sd its standard deviation
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from prism_jax.cloud.spot.spell_law import MIXTURES, components

from ..repairs.bins import Times
from ..repairs.laws import NEVER, exponential as exponential, log_likelihood as of_one_mode

FAMILIES = ("exponential", "weibull", "log-normal", "mixture")
SHAPES = ("weibull", "log-normal", *(f"mixture {n + 1}" for n in range(len(MIXTURES))))
"""Laws with two parameters: of the exponential family one is fixed."""
SHAPES_OF = {"weibull": (0,), "log-normal": (1,), "mixture": tuple(range(2, 2 + len(MIXTURES)))}
CHUNK = 1_000_000  # numbers at once


def log_likelihood(shape: str, times: Times, theta: np.ndarray) -> np.ndarray:
    """Log probability of `times` at parameters [point, 2], [point]."""
    if not shape.startswith("mixture"):
        return of_one_mode(shape, times, theta)
    share, apart = MIXTURES[int(shape.split()[1]) - 1]
    out = np.zeros(len(theta))
    for part in np.array_split(np.arange(len(theta)), max(len(theta) * max(len(times.low), 1) // CHUNK, 1)):
        at = theta[part]
        inside = _cdf(times.high, at, share, apart) - _cdf(times.low, at, share, apart)
        after = 1.0 - _cdf(times.beyond, at, share, apart)
        out[part] = _log(inside) @ times.count + _log(after) @ times.n_beyond
    return out


def _cdf(edge: np.ndarray, theta: np.ndarray, share: float, apart: float) -> np.ndarray:
    """P(t < edge), [point, edge]."""
    with np.errstate(divide="ignore"):
        log_edge = np.log(edge)[None]
    low, high, inner = (part[:, None] for part in components(theta, share, apart))
    return share * ndtr((log_edge - low) / inner) + (1.0 - share) * ndtr((log_edge - high) / inner)


def _log(prob: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(np.nan_to_num(np.log(prob), nan=NEVER, neginf=NEVER), NEVER)
