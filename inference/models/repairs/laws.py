"""Laws of times: log probability of counts by interval, at many parameters at once.

A law has two parameters: the logarithm of its scale in seconds, and the logarithm of its shape.

    weibull      S(t) = exp(-(t / scale)^shape); shape 1 is the exponential law, below 1 early failures are more frequent
    log-normal   log t ~ Normal(log scale, 1 / shape)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gamma, log_ndtr

from .bins import Times

LAWS = ("weibull", "log-normal")
MOST_LOG = 700.0  # of a hazard: exp of more overflows
NEVER = -1e4  # log probability that stands for none, so that no system makes a posterior minus infinity


def log_likelihood(law: str, times: Times, theta: np.ndarray) -> np.ndarray:
    """Log probability of `times` at parameters [point, 2], [point]."""
    between: Callable[..., np.ndarray] = _weibull if law == "weibull" else _log_normal
    inside, _ = between(times.low, times.high, theta)
    _, after = between(times.beyond, times.beyond, theta)
    return inside @ times.count + after @ times.n_beyond


def exponential(times: Times, log_scale: np.ndarray) -> np.ndarray:
    """Log probability of `times` under the exponential law, [point]."""
    return log_likelihood("weibull", times, np.stack([log_scale, np.zeros_like(log_scale)], axis=-1))


def mean_s(law: str, theta: np.ndarray) -> np.ndarray:
    """Mean seconds at parameters [..., 2]."""
    shape = np.exp(theta[..., 1])
    if law == "weibull":
        return np.exp(theta[..., 0]) * gamma(1.0 + 1.0 / np.maximum(shape, 0.05))
    return np.exp(theta[..., 0] + 0.5 / shape**2)


def median_s(law: str, theta: np.ndarray) -> np.ndarray:
    """Median seconds at parameters [..., 2]."""
    scale = np.exp(theta[..., 0])
    return scale * np.log(2.0) ** np.exp(-theta[..., 1]) if law == "weibull" else scale


def log_sd(law: str, theta: np.ndarray) -> np.ndarray:
    """Standard deviation of the logarithm of times at parameters [..., 2]."""
    return (np.pi / np.sqrt(6.0) if law == "weibull" else 1.0) * np.exp(-theta[..., 1])


def _weibull(low: np.ndarray, high: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log P(low < t < high) and log P(t > low), [point, interval]."""
    a, b = (_hazard(edge, theta) for edge in (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = -a + np.log(-np.expm1(-(b - a)))
    return np.maximum(np.nan_to_num(inside, nan=NEVER, neginf=NEVER), NEVER), np.maximum(-a, NEVER)


def _hazard(edge: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Cumulated hazard (t / scale)^shape, [point, interval]."""
    with np.errstate(divide="ignore"):
        log_time = np.log(edge)
    return np.exp(np.minimum(np.exp(theta[:, 1:]) * (log_time - theta[:, :1]), MOST_LOG))


def _log_normal(low: np.ndarray, high: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore"):
        a, b = (np.exp(theta[:, 1:]) * (np.log(edge) - theta[:, :1]) for edge in (low, high))
    flip = a > 0.0  # in the upper tail, the difference of the two upper tails is exact
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        upper, lower = log_ndtr(b), log_ndtr(a)
        inside = upper + np.log(-np.expm1(np.minimum(lower - upper, 0.0)))
        after = log_ndtr(-np.where(flip, -b, a))
    return np.maximum(np.nan_to_num(inside, nan=NEVER, neginf=NEVER), NEVER), np.maximum(after, NEVER)
