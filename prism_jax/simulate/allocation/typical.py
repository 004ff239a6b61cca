"""Quantiles of the steps of a typical allocation: one whose mean step is close to the median over allocations.

Given its GPUs, a column's steps scatter about the column's own mean with a law that all columns share (their pooled deviations).
Means of few repeats vary more than true ones: they are drawn towards each other until columns vary as much as they did.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ..._typing import Floats
from ..replica_maximum import finish, interpolation, latin_hypercube, survival_table
from .repeats import Repeats

N_ALLOCATION = 256
TYPICAL_SHARE = 0.1  # of the allocations: those in the middle
N_STEP = 1 << 13
N_GROUP = 4  # of randomisations, whose scatter is the error
SMALLEST_PROB = 1e-30


def typical_quantile(repeats: Repeats, p: float, seed: int) -> tuple[float, float]:
    """Quantile p of the step time within a typical allocation, seconds, and its Monte Carlo standard error."""
    parts = [_quantile(own, p, seed + k) for k, own in enumerate(repeats.groups(N_GROUP))]
    return _quantile(repeats, p, seed), float(np.std(parts, ddof=1) / np.sqrt(N_GROUP))


def _quantile(repeats: Repeats, p: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    at_s = repeats.thresholds()
    log_below = np.log(np.maximum(_below(repeats, at_s), SMALLEST_PROB))
    weight = repeats.weight.ravel() / repeats.weight.sum()
    drawn = rng.multinomial(repeats.n, weight, N_ALLOCATION) @ log_below.reshape(len(weight), -1)
    below = np.exp(drawn).reshape(N_ALLOCATION, len(repeats.chance), len(at_s))
    mean_s = at_s[-1] - np.trapezoid(below, at_s) @ repeats.chance
    n_kept = max(1, int(TYPICAL_SHARE * N_ALLOCATION))
    first = (N_ALLOCATION - n_kept) // 2
    typical = below[np.argsort(mean_s)[first : first + n_kept]].mean(axis=0)
    return float(np.quantile(_steps(repeats, at_s, typical, rng), p))


def _below(repeats: Repeats, at_s: Floats) -> Floats:
    """[column, node, time] probability that a column's step is at most a time, given the column's GPUs."""
    n, n_node = repeats.time_s.shape[:2]
    time_s = repeats.time_s.reshape(n, n_node, -1)
    weight = repeats.weight.ravel()
    share = weight / weight.sum()
    mean_s = time_s.mean(axis=0)
    off_s = (time_s - mean_s) * np.sqrt(n / (n - 1))
    centre = mean_s @ share
    spread, noise = (mean_s - centre[:, None]) ** 2 @ share, (off_s**2).mean(axis=0) @ share / n
    kept = np.sqrt(np.maximum(1.0 - noise / np.where(spread > 0.0, spread, 1.0), 0.0))
    mean_s = centre[:, None] + kept[:, None] * (mean_s - centre[:, None])
    tables = [survival_table(off_s[:, g].ravel(), np.tile(weight, n)) for g in range(n_node)]
    return np.stack(
        [
            1.0 - np.interp(at_s - mean_s[g][:, None], off[::-1], above[::-1], left=1.0, right=0.0)
            for g, (above, off) in enumerate(tables)
        ],
        axis=1,
    )


def _steps(repeats: Repeats, at_s: Floats, below: Floats, rng: np.random.Generator) -> Floats:
    """Sorted step times [step] of an allocation whose slowest replica is at most `at_s` with probability `below` [node, time]."""
    u = latin_hypercube(2, N_STEP, rng)
    shared = repeats.shared
    factor = shared.factor(ndtri(u[0])) if len(repeats.factor) > 1 else np.ones(N_STEP)
    low, share = interpolation(factor, repeats.factor)
    quantiles = np.stack([np.interp(u[1], own, at_s) for own in np.maximum.accumulate(below, axis=1)])
    step = np.arange(N_STEP)
    high = np.minimum(low + 1, len(quantiles) - 1)
    core_s = quantiles[low, step] + share * (quantiles[high, step] - quantiles[low, step])
    end_s = np.interp(factor, shared.factor(shared.scores), np.asarray(shared.end_s, dtype=np.float64))
    return np.asarray(finish(core_s, end_s, shared, rng))
