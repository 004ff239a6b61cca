"""How the variance of the step time divides: between allocations of GPUs, and from step to step within one.

    H(t, u) = E[P(T <= t | allocation) P(T <= u | allocation)]        two steps of one allocation
    var E[T | allocation] = integral of H(t, u) - F(t) F(u)           Hoeffding's covariance of these two steps

A step is the maximum of n independent columns, so that given the network factors of two steps H is J^n, with J the chance that
one column is below t in the one and below u in the other: a weighted mean over columns and over pairs of repeats, without bias
whatever their number.
"""

from __future__ import annotations

import numpy as np

from ..._typing import Floats
from ..replica_maximum import step_samples
from .repeats import Repeats

N_STEP = 1 << 13


def between_share(repeats: Repeats) -> tuple[float, float]:
    """Share of the variance over allocations and steps that lies between allocations, and its Monte Carlo standard error.

    Not cut off, so that it may pass 1 by its error (jackknife over randomisations).
    """
    at_s = repeats.thresholds()
    by_column = repeats.time_s.transpose(2, 0, 3, 1)
    each = [_moments(own_s, own, at_s) for own_s, own in zip(by_column, repeats.weight, strict=True)]
    sums = [np.stack(part) for part in zip(*each, strict=True)]
    every = [part.sum(axis=0) for part in sums]
    n = len(each)
    without = np.array([
        _covariance(repeats, at_s, *(total - part[i] for total, part in zip(every, sums, strict=True)))
        / _variance(repeats.without(i))
        for i in range(n)
    ])  # fmt: skip
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return _covariance(repeats, at_s, *every) / _variance(repeats), float(error)


def _moments(time_s: Floats, weight: Floats, at_s: Floats) -> tuple[Floats, Floats, np.float64]:
    """Weighted sums over columns: of both steps of a pair below, of one step below, and of the weights.

    Args:
        time_s: [repeat, column, node].
        weight: [column].
        at_s: [time] thresholds.

    Returns:
        [node x time, node x time], [node x time], [].
    """
    n = len(time_s)
    below = (time_s[..., None] <= at_s).reshape(n, len(weight), -1).astype(float)
    mean, flat = below.mean(axis=0), below.reshape(-1, below.shape[-1])
    pairs = (mean * weight[:, None]).T @ mean
    with_themselves = (flat * np.tile(weight, n)[:, None]).T @ flat / n
    return (n * pairs - with_themselves) / (n - 1), weight @ mean, weight.sum()


def _covariance(repeats: Repeats, at_s: Floats, both: Floats, one: Floats, mass: Floats) -> float:
    """Covariance of two steps of one allocation, seconds squared, of the sums of `_moments`."""
    chance, shape, shared = repeats.chance, (len(repeats.chance), len(at_s)), repeats.shared
    joint = (np.clip(both / mass, 0.0, 1.0) ** repeats.n).reshape(*shape, *shape)
    alone = chance @ (np.clip(one / mass, 0.0, 1.0) ** repeats.n).reshape(shape)
    over = np.einsum("g,gthu,h->tu", chance, joint, chance, optimize=True) - np.outer(alone, alone)
    lengthened = np.prod([1.0 + stall.prob(shared.n_devices) * stall.mean_fraction for stall in shared.stalls])
    return float(np.trapezoid(np.trapezoid(over, at_s), at_s) * lengthened**2)


def _variance(repeats: Repeats) -> float:
    """Variance over allocations and steps, seconds squared: of the same columns, so that their errors cancel in the share."""
    rng = np.random.default_rng(0)
    time_s, weight = repeats.carried()
    return float(np.var(step_samples(time_s, weight, repeats.n, repeats.shared, N_STEP, rng)))
