"""NormalScoreMap: any family as a monotone piecewise-linear map from a standard normal score to a slowdown factor.

One mechanism carries every family into jitted code: draw z ~ N(0, 1), evaluate `a + b z + sum_k c_k max(z - z_k, 0)`. The
coefficients are traced arrays, so another family or another spread costs no compilation. Knots are put where the curve bends.

An op of a pipeline stage is several kernels of different classes; its residual is `sum_c w_c X_c` with `w_c` the class's share
of the op's noise-free time. `combine` makes the map of the sum, by convolution on a float64 grid, which saves a draw per class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Floats
from ..core.errors import SpecError
from ..core.lazy import special
from .families import Family, Normal

_SIZES = (3, 5, 9, 13, 17, 25, 33, 45, 65, 97, 129, 193)


def fit_knots(z: Floats, values: Floats, max_knots: int, tolerance: float) -> tuple[Floats, Floats]:
    """Knots and values of the smallest fit whose error stays below `tolerance`, or of the one with `max_knots`.

    Args:
        z: increasing normal scores, finely spaced.
        values: factors there, not decreasing, about one.
        max_knots: upper limit on the number of knots, at least 2.
        tolerance: largest allowed error in units of `error_scale`.
    """
    ends = np.array([0, len(z) - 1])
    chord = np.interp(z, z[ends], values[ends])
    if max_knots == 2 or float(np.abs(values - chord).max()) <= 1e-12:
        return z[ends], values[ends]
    scale = error_scale(z, values)
    knots, fitted = z[ends], values[ends]
    for n_knots in [*(n for n in _SIZES if n < max_knots), max_knots]:
        index = _place(z, values, scale, n_knots)
        knots, fitted = z[index], np.maximum.accumulate(_least_squares(z, values, index, 1.0 / scale**2))
        if float((np.abs(np.interp(z, knots, fitted) - values) / scale).max()) <= tolerance:
            break
    return knots, fitted


def error_scale(z: Floats, values: Floats) -> Floats:
    """Returns the scale that errors are measured against: the distance from one or the spread of the bulk, whichever is larger.

    In absolute terms a heavy tail would take all knots for quantiles that never occur.
    """
    width = 0.5 * float(np.interp(1.0, z, values) - np.interp(-1.0, z, values))
    return np.maximum(max(width, 1e-12), np.abs(values - 1.0))


def _place(z: Floats, values: Floats, scale: Floats, n_knots: int) -> NDArray[np.intp]:
    """Indices of about `n_knots` points, dense where the curve bends.

    Between knots a distance `h` apart linear interpolation errs by `h^2 |f''| / 8`, so equal shares of the integral of
    `sqrt(|f''| / scale)` give every segment the same error.
    """
    step = np.diff(z)
    bend = np.abs(np.diff(np.diff(values) / step)) / (0.5 * (step[1:] + step[:-1]))
    density = np.sqrt(np.concatenate([bend[:1], bend, bend[-1:]]) / scale)
    density += 0.02 * density.mean()  # keeps knots finite distances apart on straight stretches
    share = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]) * step)])
    at = np.searchsorted(share, np.linspace(0.0, share[-1], n_knots)[1:-1])
    return np.unique(np.concatenate([[0], at, [len(z) - 1]]))


def _least_squares(z: Floats, values: Floats, index: NDArray[np.intp], weight: Floats) -> Floats:
    """Values at knots `z[index]` whose interpolant is nearest to `values` in weighted least squares.

    Interpolating instead would lie above every convex stretch and so bias the mean; this lowers the largest error too.
    """
    knots = z[index]
    segment = np.clip(np.searchsorted(knots, z, side="right") - 1, 0, len(knots) - 2)
    right = (z - knots[segment]) / (knots[segment + 1] - knots[segment])
    left, n = 1.0 - right, len(knots)
    normal = np.zeros((n, n))
    lower = np.arange(n - 1)
    normal[lower, lower] += np.bincount(segment, weight * left * left, n - 1)
    normal[lower + 1, lower + 1] += np.bincount(segment, weight * right * right, n - 1)
    cross = np.bincount(segment, weight * left * right, n - 1)
    normal[lower, lower + 1] += cross
    normal[lower + 1, lower] += cross
    target = np.bincount(segment, weight * left * values, n) + np.bincount(segment + 1, weight * right * values, n)
    return np.asarray(np.linalg.solve(normal, target), dtype=np.float64)


N_KNOTS = 97  # at most; most families need 5 to 45
TOLERANCE = 1e-3  # largest error over the larger of the spread and the distance from one
Z_MAX = 6.5  # one draw in 2.5e10 lies beyond; the map continues linearly
_N_FINE = 6501


@dataclass(frozen=True)
class NormalScoreMap:
    """Factor at normal score z: linear between `(knots_z, values)` and continued linearly beyond both ends.

    Attributes:
        knots_z: increasing normal scores, at least two.
        values: factors at the knots, not decreasing.
    """

    knots_z: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.knots_z) < 2 or len(self.knots_z) != len(self.values):
            raise SpecError(
                f"NormalScoreMap: {len(self.knots_z)} knots and {len(self.values)} values; give two or more pairs"
            )
        if np.any(np.diff(self.knots_z) <= 0.0) or np.any(np.diff(self.values) < 0.0):
            raise SpecError("NormalScoreMap: knots_z must increase and values must not decrease")

    @classmethod
    def from_family(cls, family: Family, n_knots: int = N_KNOTS, z_max: float = Z_MAX) -> NormalScoreMap:
        """The map of `family`, with mean exactly one under N(0, 1).

        Args:
            family: a hashable family; the result is cached by its value.
            n_knots: at most this many knots; a linear family gets two, others as few as `TOLERANCE` allows.
            z_max: knots span [-z_max, z_max].

        Raises:
            SpecError: `n_knots` is below 2.
        """
        if n_knots < 2:
            raise SpecError(f"n_knots = {n_knots}, but a map needs at least 2")
        return _map_of_family(family, n_knots, z_max)

    @property
    def mean(self) -> float:
        """E[map(z)] for z ~ N(0, 1): sum over segments of `a (Phi(u) - Phi(l)) + b (phi(l) - phi(u))`."""
        z, values, slopes = self._segments
        edges = np.concatenate([[-np.inf], z[1:-1], [np.inf]])
        density = np.exp(-0.5 * edges**2) / np.sqrt(2.0 * np.pi)
        intercepts = values[:-1] - slopes * z[:-1]
        # Differences of Phi are taken on the side where Phi is small.
        mass = np.where(edges[1:] <= 0.0, np.diff(special.ndtr(edges)), -np.diff(special.ndtr(-edges)))
        return float(np.sum(intercepts * mass - slopes * np.diff(density)))

    def __call__(self, z: ArrayLike) -> Floats:
        score = np.asarray(z, dtype=np.float64)
        knots, values, slopes = self._segments
        segment = np.clip(np.searchsorted(knots, score, side="right") - 1, 0, len(slopes) - 1)
        return values[segment] + slopes[segment] * (score - knots[segment])

    def inverse(self, factor: ArrayLike) -> Floats:
        """Normal score of a factor; the largest one where the map is flat, -inf below and +inf above a flat end."""
        x = np.asarray(factor, dtype=np.float64)
        knots, values, slopes = self._segments
        segment = np.clip(np.searchsorted(values, x, side="right") - 1, 0, len(slopes) - 1)
        offset, slope = x - values[segment], slopes[segment]
        flat = np.where(offset < 0.0, -np.inf, np.inf)
        return np.where(slope > 0.0, knots[segment] + offset / np.where(slope > 0.0, slope, 1.0), flat)

    def normalised(self) -> NormalScoreMap:
        """Returns the same map divided by its mean."""
        mean = self.mean
        return NormalScoreMap(self.knots_z, tuple(v / mean for v in self.values))

    def relu_terms(self) -> tuple[float, float, Floats, Floats]:
        """Coefficients a, b, z_k, c_k of the map as `a + b z + sum_k c_k max(z - z_k, 0)`."""
        knots, values, slopes = self._segments
        return float(values[0] - slopes[0] * knots[0]), float(slopes[0]), knots[1:-1], np.diff(slopes)

    @cached_property
    def _segments(self) -> tuple[Floats, Floats, Floats]:
        """Knots, values, and the slope after each knot but the last."""
        z, values = np.asarray(self.knots_z), np.asarray(self.values)
        return z, values, np.diff(values) / np.diff(z)


@lru_cache(maxsize=1024)
def _map_of_family(family: Family, n_knots: int, z_max: float) -> NormalScoreMap:
    if family.cv == 0.0:
        return NormalScoreMap((-z_max, z_max), (1.0, 1.0))
    z = np.linspace(-z_max, z_max, _N_FINE)
    return map_through(z, np.maximum.accumulate(family.ppf_normal(z)), n_knots)


def map_through(z: Floats, values: Floats, n_knots: int = N_KNOTS) -> NormalScoreMap:
    """Mean-one map along the points (z, values) with as few knots as `TOLERANCE` allows, at most `n_knots`."""
    knots, fitted = fit_knots(z, values, n_knots, TOLERANCE)
    return NormalScoreMap(tuple(knots.tolist()), tuple(fitted.tolist())).normalised()


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
