"""How good an approximate posterior is: Pareto-smoothed importance weights of its draws.

Source: Vehtari et al., Pareto smoothed importance sampling, JMLR 25 (2024); Yao et al., Yes, but did it work?, ICML 2018: with a
Pareto shape below 0.7 the weighted draws are trustworthy, and the approximation, too, is close.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

GOOD_K = 0.7
SMALLEST_EXCESS = 1e-300  # keeps the grid of the Pareto fit finite where a quarter of the tail underflows


def smoothed_weights(log_ratio: np.ndarray) -> tuple[np.ndarray, float]:
    """Normalised weights [draw] and the Pareto shape of their tail.

    Args:
        log_ratio: log joint density minus log density of the approximation, up to a constant, [draw].

    Notes:
        Infinite shape where a ratio is NaN, or none is finite; minus infinity where the tail is flat. Draws of density zero have
        weight zero.
    """
    if np.isnan(log_ratio).any() or log_ratio.max() in (np.inf, -np.inf):
        return np.full(len(log_ratio), 1.0 / len(log_ratio)), np.inf
    weight = np.exp(log_ratio - log_ratio.max())
    n_tail = int(min(0.2 * len(weight), 3.0 * np.sqrt(len(weight))))
    order = np.argsort(weight)
    if n_tail < 5 or weight[order[-n_tail - 1]] == weight[order[-1]]:
        return weight / weight.sum(), -np.inf
    tail = order[-n_tail:]
    cut = weight[order[-n_tail - 1]]
    shape, scale = pareto_fit(weight[tail] - cut)
    probability = (np.arange(n_tail) + 0.5) / n_tail
    smoothed = cut + _pareto_quantile(probability, shape, scale)
    weight[tail] = np.minimum(smoothed, weight.max())
    return weight / weight.sum(), shape


def pareto_fit(excess: np.ndarray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto law of sorted `excess` [tail], none negative and the last above zero.

    Source: Zhang and Stephens, Technometrics 51 (2009), with the weak prior of Vehtari et al., appendix G.
    """
    n = len(excess)
    n_grid = 30 + int(np.sqrt(n))
    quarter = max(float(excess[max(int(n / 4 + 0.5) - 1, 0)]), SMALLEST_EXCESS)
    grid = 1.0 / max(float(excess[-1]), SMALLEST_EXCESS) + (
        1.0 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    ) / (3.0 * quarter)
    grid = grid[grid != 0.0]  # an exponential law, the limit of both sides: its neighbours speak for it
    shape = np.log1p(-grid[:, None] * excess).mean(axis=1)
    log_likelihood = n * (np.log(-grid / shape) - shape - 1.0)
    weight = np.exp(log_likelihood - logsumexp(log_likelihood))
    theta = float(weight @ grid)
    k = float(np.log1p(-theta * excess).mean())
    return (k * n + 5.0) / (n + 10.0), -k / theta


def _pareto_quantile(probability: np.ndarray, shape: float, scale: float) -> np.ndarray:
    if abs(shape) < 1e-9:
        return -scale * np.log1p(-probability)
    with np.errstate(over="ignore"):  # infinite quantiles of a very heavy tail: the largest weight cuts them off
        return scale * np.expm1(-shape * np.log1p(-probability)) / shape
