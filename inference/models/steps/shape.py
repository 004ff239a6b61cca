"""The shape of a run: the quantile function of its step times over their median, by what a few quantiles exceed one.

A shape is a vector [..., knot] of `ln(|q - 1| + FLOOR)`, `q` the quantile of step / median at each of `LEVELS`. Between
knots the quantile function is linear in the normal score; below the first it goes on so; above the last the excess
grows like that of an exponential tail, which is what rare stalls look like.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri

from prism_jax._typing import Floats

LEVELS = np.array([0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
N_BELOW = 6
P95, P99 = 10, 11
FLOOR = 1e-4  # of a step: ties and rounding of logs; excesses below it are alike
SMALLEST = 1e-3  # of the median: where the lower tail ends, so that step times stay positive
TAIL_SCORES = np.linspace(-5.0, 5.0, 1001)
_MIDDLES = (np.arange(2000) + 0.5) / 2000


def shape_of(relative: Floats) -> Floats:
    """Shape of one run; [knot].

    Args:
        relative: step times over their median, [step].
    """
    q = np.quantile(relative, LEVELS)
    side = np.where(LEVELS < 0.5, -1.0, 1.0)
    return np.log(np.maximum(side * (q - 1.0), 0.0) + FLOOR)


def excess(shape: Floats) -> Floats:
    """Quantiles over the median minus one, in the order of `LEVELS`, never decreasing; [..., knot]."""
    size = np.maximum(np.exp(np.minimum(shape, 20.0)) - FLOOR, 0.0)
    below = np.maximum.accumulate(size[..., N_BELOW - 1 :: -1], axis=-1)[..., ::-1]
    above = np.maximum.accumulate(size[..., N_BELOW:], axis=-1)
    return np.concatenate([-np.minimum(below, 1.0 - SMALLEST), above], axis=-1)


def ratios(shape: Floats) -> Floats:
    """p95/p50 and p99/p50; [..., 2]."""
    return 1.0 + excess(shape)[..., [P95, P99]]


def quantile(shape: Floats, prob: Floats) -> Floats:
    """Step time over its median at probabilities `prob` (0 to 1 exclusive) of one shape [knot]; as `prob`."""
    q = 1.0 + np.insert(excess(shape), N_BELOW, 0.0)
    levels = np.insert(LEVELS, N_BELOW, 0.5)
    score, knots = ndtri(prob), ndtri(levels)
    value = np.interp(score, knots, q)
    slope = (q[1] - q[0]) / (knots[1] - knots[0])
    value = np.where(score < knots[0], np.maximum(q[0] + slope * (score - knots[0]), SMALLEST), value)
    scale = (q[-1] - q[-2]) / np.log((1.0 - levels[-2]) / (1.0 - levels[-1]))
    beyond = np.log((1.0 - levels[-1]) / np.maximum(1.0 - np.asarray(prob), 1e-300))
    return np.where(score > knots[-1], q[-1] + scale * np.maximum(beyond, 0.0), value)


def cdf(shape: Floats, relative: Floats) -> Floats:
    """Probability that a step takes at most `relative` times the median; as `relative`."""
    prob = ndtr(TAIL_SCORES)
    rising = quantile(shape, prob) + 1e-12 * np.arange(prob.size)  # ties: any increasing function will do
    return np.interp(relative, rising, prob, left=0.0, right=1.0)


def moments(shape: Floats) -> tuple[float, float]:
    """Mean and variance of step time over its median."""
    values = quantile(shape, _MIDDLES)
    return float(values.mean()), float(values.var())


def ks_distance(relative: Floats, prob: Floats) -> float:
    """Kolmogorov-Smirnov distance of sorted values [step] from a distribution with `prob` = its CDF at them."""
    n = relative.size
    upper = np.searchsorted(relative, relative, side="right") / n
    lower = np.searchsorted(relative, relative, side="left") / n
    return float(max(np.max(upper - prob), np.max(prob - lower)))


def lag_one(relative: Floats) -> float:
    """Lag-1 autocorrelation of the normal scores of consecutive values; 0 where they do not vary."""
    rank = np.argsort(np.argsort(relative, kind="stable"), kind="stable")
    score = ndtri((rank + 0.5) / relative.size)
    if relative.size < 3 or np.ptp(relative) == 0.0:
        return 0.0
    return float(np.clip(np.corrcoef(score[1:], score[:-1])[0, 1], -0.95, 0.95))
