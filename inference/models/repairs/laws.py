"""Laws of times: log probability of counts by interval, at many parameters at once.

Every law has the same two parameters, so that one population holds systems of either: the logarithm of its median in seconds, and
the logarithm of its spread, the standard deviation of log times.

    weibull      S(t) = exp(-(t / scale)^shape), spread = pi / sqrt(6) / shape, median = scale log(2)^(1/shape);
                 shape 1 is the exponential law, below 1 early failures are more frequent
    log-normal   log t ~ Normal(log median, spread)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import gammaln, log_ndtr

from .bins import Times

LAWS = ("weibull", "log-normal")
EXPONENTIAL = float(np.log(np.pi / np.sqrt(6.0)))  # its log spread
LOG_LOG_2 = float(np.log(np.log(2.0)))
MOST_LOG = 700.0  # of a hazard: exp of more overflows
MOST_LOG_SHAPE = 3.0  # of 1 / shape: beyond it the mean is a matter of times that nobody has waited for
NEVER = -1e4  # log probability that stands for none, so that no system makes a posterior minus infinity


def log_likelihood(law: str, times: Times, theta: np.ndarray) -> np.ndarray:
    """Log probability of `times` at parameters [point, 2], [point]."""
    between: Callable[..., tuple[np.ndarray, np.ndarray]] = _weibull if law == "weibull" else _log_normal
    inside, _ = between(times.low, times.high, theta)
    _, after = between(times.beyond, times.beyond, theta)
    return inside @ times.count + after @ times.n_beyond


def exponential(times: Times, log_median: np.ndarray) -> np.ndarray:
    """Log probability of `times` under the exponential law, [point]."""
    return log_likelihood("weibull", times, np.stack([log_median, np.full_like(log_median, EXPONENTIAL)], axis=-1))


def mean_s(is_weibull: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Mean seconds at parameters [draw, 2] of one law or the other [draw]."""
    per_shape = np.exp(np.minimum(theta[:, 1] - EXPONENTIAL, MOST_LOG_SHAPE))  # 1 / shape
    weibull = theta[:, 0] - LOG_LOG_2 * per_shape + gammaln(1.0 + per_shape)
    log_normal = theta[:, 0] + 0.5 * np.exp(np.minimum(2.0 * theta[:, 1], MOST_LOG))
    return np.exp(np.minimum(np.where(is_weibull, weibull, log_normal), MOST_LOG))


def _weibull(low: np.ndarray, high: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log P(low < t < high) and log P(t > low), [point, interval]."""
    a, b = (_hazard(edge, theta) for edge in (low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = -a + np.log(-np.expm1(-(b - a)))
    return np.maximum(np.nan_to_num(inside, nan=NEVER, neginf=NEVER), NEVER), np.maximum(-a, NEVER)


def _hazard(edge: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Cumulated hazard (t / scale)^shape = log(2) (t / median)^shape, [point, interval]."""
    with np.errstate(divide="ignore"):
        log_time = np.log(edge)
    shape = np.exp(EXPONENTIAL - theta[:, 1:])
    return np.exp(np.minimum(LOG_LOG_2 + shape * (log_time - theta[:, :1]), MOST_LOG))


def _log_normal(low: np.ndarray, high: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(divide="ignore"):
        a, b = (np.exp(-theta[:, 1:]) * (np.log(edge) - theta[:, :1]) for edge in (low, high))
    flip = a > 0.0  # in the upper tail, the difference of the two upper tails is exact
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    with np.errstate(divide="ignore", invalid="ignore"):
        upper, lower = log_ndtr(b), log_ndtr(a)
        inside = upper + np.log(-np.expm1(np.minimum(lower - upper, 0.0)))
        after = log_ndtr(-np.where(flip, -b, a))
    return np.maximum(np.nan_to_num(inside, nan=NEVER, neginf=NEVER), NEVER), np.maximum(after, NEVER)
