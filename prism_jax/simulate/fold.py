"""From replica columns to steps: the maximum over replicas given what they share, then what is shared.

    F(t | g) = P(column <= t | network score g)        P(max <= t | g) = F(t | g)^n

Columns carry times at a few scores g; between them a column's time is interpolated in the regime's mean factor, in which it is nearly
linear. Steps are then drawn from strata of g and, inside each, of the maximum, crossed with a Latin hypercube over step factor, stalls and
the end-of-step call, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ..variability.families import Family
from ..variability.score_map import NormalScoreMap
from ..variability.tree import Stall

Floats = NDArray[np.float64]
N_STRATA = 32  # of the network score


@dataclass(frozen=True)
class Shared:
    """What all replicas of a step share.

    Attributes:
        scores: network scores the columns carry, increasing.
        regime_factor: [score] mean regime factor at them, weighted by exposed time.
        regime: families by network axis with the axis's share of exposed communication.
        step: factor of the whole step.
        stalls: rare delays.
        n_devices: for the probability of a stall.
        end_s: [score] exposed communication that ends the step, of the busiest lane.
        end_call: its call residual.
    """

    scores: Floats
    regime: tuple[tuple[Family, float], ...]
    step: Family
    stalls: tuple[Stall, ...]
    n_devices: int
    end_s: Floats
    end_call: Family

    def factor(self, score: Floats) -> Floats:
        """Mean regime factor at network scores."""
        total = sum(share for _, share in self.regime)
        if total == 0.0:
            return np.ones_like(score)
        return sum(s * NormalScoreMap.from_family(f)(score) for f, s in self.regime) / total  # type: ignore[return-value]


def step_samples(
    time_s: Floats,
    weight: Floats,
    n_replica: int,
    shared: Shared,
    n: int,
    rng: np.random.Generator,
    known_s: Floats | None = None,
) -> Floats:
    """`n` equally likely step times, seconds, sorted.

    Args:
        time_s: [score, column] times of independent replica columns.
        weight: [column] importance weights.
        n_replica: columns a step takes the maximum of; may be zero if there are known replicas.
        known_s: [replica, score, column] times of replicas that differ from the others.
    """
    n = -(-n // N_STRATA) * N_STRATA
    u = latin_hypercube(2 + len(shared.stalls), n, rng)
    strata = N_STRATA if len(shared.scores) > 1 else 1
    u_score = stratified(strata, rng) if strata > 1 else np.array([0.5])
    scores = ndtri(np.clip(u_score, 1e-9, 1 - 1e-9))
    position = interpolation(shared.factor(scores), shared.factor(shared.scores))
    maxima = np.empty(n)
    for k in range(strata):
        low, fraction = position[0][k], position[1][k]
        slowest = np.zeros(n // strata)
        if n_replica > 0:
            slowest = maximum_quantile(_between(time_s, low, fraction), weight, n_replica, stratified(n // strata, rng))
        for own in () if known_s is None else known_s:
            drawn = np.quantile(_between(own, low, fraction), rng.random(n // strata))
            slowest = np.maximum(slowest, drawn)
        maxima[k::strata] = slowest
    end_s = np.interp(np.resize(shared.factor(scores), n), shared.factor(shared.scores), shared.end_s)
    return np.sort(finish(maxima, end_s, shared, u))


def _between(time_s: Floats, low: int, fraction: float) -> Floats:
    """Times [column] between two carried scores."""
    return time_s[low] if fraction == 0.0 else (1.0 - fraction) * time_s[low] + fraction * time_s[low + 1]


def finish(core_s: Floats, end_s: Floats, shared: Shared, u: Floats) -> Floats:
    """Step time from the maximum over replicas: residual of the final communication, step factor, stalls.

    Args:
        core_s: [n]; end_s: [n] final communication contained in it; u: [2 + stall kinds, n] uniforms.
    """
    total = core_s
    if shared.end_call.cv > 0:
        total = total + end_s * (NormalScoreMap.from_family(shared.end_call)(ndtri(u[0])) - 1.0)
    if shared.step.cv > 0:
        total = total * NormalScoreMap.from_family(shared.step)(ndtri(u[1]))
    stretch = np.ones_like(total)
    for row, stall in zip(u[2:], shared.stalls, strict=False):
        prob = stall.prob(shared.n_devices)
        if prob > 0.0:
            # The uniform of a hit, rescaled, is again uniform and independent of the hit.
            stretch = stretch - stall.mean_fraction * np.log(np.where(row < prob, row / prob, 1.0))
    return total * stretch


def maximum_quantile(time_s: Floats, weight: Floats, n: int, u: Floats) -> Floats:
    """Quantile u of the maximum of n independent columns, from weighted columns.

    Survival is summed from the slow end, where the maximum lives, at mid-weights; between columns it is interpolated.
    """
    order = np.argsort(time_s)[::-1]
    mass = weight[order] / weight.sum()
    survival = np.cumsum(mass) - 0.5 * mass
    wanted = -np.expm1(np.log(u) / n)
    return np.interp(wanted, survival, time_s[order])


def interpolation(x: Floats, nodes: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Segment and fraction of each x between nodes; the end segments continue."""
    if len(nodes) == 1:
        return np.zeros(len(x), dtype=np.intp), np.zeros(len(x))
    low = np.clip(np.searchsorted(nodes, x) - 1, 0, len(nodes) - 2)
    gap = nodes[low + 1] - nodes[low]
    return low, np.where(gap > 0, (x - nodes[low]) / np.where(gap > 0, gap, 1.0), 0.0)


def stratified(n: int, rng: np.random.Generator) -> Floats:
    """Uniforms [n], one per cell of width 1/n, increasing."""
    return (np.arange(n) + np.clip(rng.random(n), 1e-9, 1.0 - 1e-9)) / n


def latin_hypercube(dimension: int, n: int, rng: np.random.Generator) -> Floats:
    """Uniforms [dimension, n], each coordinate stratified into n cells and shuffled on its own."""
    cells = np.stack([rng.permutation(n) for _ in range(dimension)])
    return (cells + np.clip(rng.random((dimension, n)), 1e-9, 1.0 - 1e-9)) / n
