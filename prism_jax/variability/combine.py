"""The map of a weighted sum of independent factors, by convolution on a float64 grid.

An op of a pipeline stage is several kernels of different classes; its residual is `sum_c w_c X_c` with `w_c` the class's share
of the op's noise-free time. One map for the sum saves a draw per class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..core.arrays import Floats
from ..core.errors import SpecError
from ..core.lazy import special
from .families import Family, Normal
from .score_map import N_KNOTS, Z_MAX, NormalScoreMap, map_through

N_GRID = 4096
MAX_GRID = 1 << 16
TAIL_Z = 6.0  # the sum is resolved to this score (1e-9 in either tail); beyond it the map continues linearly


def combine(families: Sequence[Family], weights: Sequence[float], n_knots: int = N_KNOTS) -> NormalScoreMap:
    """Mean-one map of `sum_c w_c X_c` for independent `X_c` of `families`.

    Args:
        families: one per part.
        weights: share of each part, >= 0, sum one.
        n_knots: as for `NormalScoreMap.from_family`.

    Raises:
        SpecError: lengths differ, a weight is negative, or the weights do not sum to one.

    Notes:
        Each part is put on a grid of spacing h by splitting its mass linearly between neighbours, which keeps the mean and adds
        at most h^2 / 4 to the variance; h is below a 50th of the sum's bulk width. Parts so heavy-tailed that their 1e-12
        quantile does not fit on the largest grid are clipped at the quantile that does.
    """
    w = np.asarray(weights, dtype=np.float64)
    if len(families) != w.size or w.size == 0:
        raise SpecError(f"combine: {len(families)} families and {w.size} weights; give one weight per family")
    if np.any(w < 0.0) or abs(float(w.sum()) - 1.0) > 1e-6:
        raise SpecError(f"combine: weights {w.tolist()} must be >= 0 and sum to 1, but sum to {w.sum():g}")
    parts = tuple((f, round(float(x), 12)) for f, x in zip(families, w, strict=True) if x > 0.0 and f.cv > 0.0)
    return _combine(parts, n_knots)


@lru_cache(maxsize=4096)
def _combine(parts: tuple[tuple[Family, float], ...], n_knots: int) -> NormalScoreMap:
    if not parts:
        return NormalScoreMap((-Z_MAX, Z_MAX), (1.0, 1.0))
    if len(parts) == 1:
        family, w = parts[0]
        alone = NormalScoreMap.from_family(family, n_knots)
        return NormalScoreMap(alone.knots_z, tuple(1.0 + w * (v - 1.0) for v in alone.values))
    normals = [w * f.cv for f, w in parts if f.is_normal]
    if len(normals) == len(parts):
        return NormalScoreMap.from_family(Normal(math.hypot(*normals)), n_knots)
    # Deviations w (X - 1) sum to the deviation of the total, whatever the constant parts weigh.
    deviations = [_Deviation(NormalScoreMap.from_family(f, 2 * N_KNOTS), w) for f, w in parts]
    return _map_of_sum(deviations, n_knots)


@dataclass(frozen=True)
class _Deviation:
    """`weight (X - 1)` of one part: quantile and score through the part's map."""

    score_map: NormalScoreMap
    weight: float

    def at(self, z: float) -> float:
        return self.weight * (float(self.score_map(z)) - 1.0)

    def scores(self, x: Floats) -> Floats:
        return self.score_map.inverse(1.0 + x / self.weight)


def _map_of_sum(parts: Sequence[_Deviation], n_knots: int) -> NormalScoreMap:
    reach, n_grid = _reach(parts)
    low = [d.at(-reach) for d in parts]
    step = sum(d.at(reach) - x for d, x in zip(parts, low, strict=True)) / (n_grid - 4)
    spectrum = np.ones(n_grid // 2 + 1, dtype=np.complex128)
    for part, start in zip(parts, low, strict=True):
        spectrum = spectrum * np.fft.rfft(_lattice(part, start, step, n_grid))
    mass = np.maximum(np.fft.irfft(spectrum, n_grid), 0.0)
    x = np.asarray(sum(low) + step * np.arange(n_grid), dtype=np.float64)
    return _map_of_lattice(x, mass / mass.sum(), n_knots)


def _reach(parts: Sequence[_Deviation]) -> tuple[float, int]:
    """Largest score, and grid size, at which the grid still resolves the bulk of the sum."""
    bulk = math.sqrt(sum((0.5 * (d.at(1.0) - d.at(-1.0))) ** 2 for d in parts))
    for reach in (7.0, 6.5, 6.0, 5.5, 5.0, 4.5, 4.0):
        span = sum(d.at(reach) - d.at(-reach) for d in parts)
        for n_grid in (N_GRID, 4 * N_GRID, MAX_GRID):
            if span / n_grid <= 0.02 * bulk:
                return reach, n_grid
    return 3.5, MAX_GRID


def _lattice(part: _Deviation, start: float, step: float, n_grid: int) -> Floats:
    """Mass of `part` at `start + i step`: expectation of the hat function around each point, which keeps the mean.

    That expectation is the mean of the distribution function over the cell to the right of the point minus that over the cell to
    its left; what lies beyond the grid goes to its ends.
    """
    n_sub = 4
    middles = np.asarray(start + step / n_sub * (np.arange(-n_sub, n_grid * n_sub) + 0.5), dtype=np.float64)
    cell_mean = special.ndtr(part.scores(middles)).reshape(-1, n_sub).mean(axis=1)
    mass = np.diff(cell_mean)
    mass[0] += cell_mean[0]
    mass[-1] += 1.0 - cell_mean[-1]
    return np.maximum(mass, 0.0)


def _map_of_lattice(x: Floats, mass: Floats, n_knots: int) -> NormalScoreMap:
    """Map of a lattice distribution: probability up to a point counts half of the point's own mass."""
    lower = np.cumsum(mass) - 0.5 * mass
    upper = np.cumsum(mass[::-1])[::-1] - 0.5 * mass
    tiny = float(special.ndtr(-TAIL_Z))
    inside = (lower > tiny) & (upper > tiny) & (mass > 0.0)
    z_of_x = np.where(lower < 0.5, special.ndtri(np.clip(lower, tiny, 0.5)), -special.ndtri(np.clip(upper, tiny, 0.5)))[
        inside
    ]
    z = np.linspace(z_of_x[0], z_of_x[-1], 4001)
    values = 1.0 + np.interp(z, z_of_x, x[inside])
    return map_through(z, np.maximum.accumulate(values), n_knots)
