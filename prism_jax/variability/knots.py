"""Knots of a piecewise-linear fit to a tabulated monotone curve: where to put them, and which values they take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats

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
    """What an error is measured against: the distance from one or the spread of the bulk, whichever is larger.

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
