"""Residuals of log efficiency after smooth features, by kriging from the nearest measured shapes.

    cov(r, r') / variance = (1 - nugget) exp(-distance / reach) + nugget [same cell]

Distances are in doublings along the axes. Reach, nugget and the tail of standardised errors are those with the best likelihood
when cells are left out one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

N_NEAR = 12  # measured shapes that speak for a new one; 24 change predictions by less than their error
REACHES, NUGGETS, TAILS = (0.5, 1.0, 2.0, 4.0), (0.03, 0.1, 0.3, 0.6), (3.0, 4.0, 6.0, 10.0, 30.0)
MOST_CELLS = 4000  # for the search of reach and nugget, evenly chosen
FEWEST_CELLS = 30  # in a table, for it to take part


class ResidualField(NamedTuple):
    """Reach in doublings, share of variance that neighbours do not share, degrees of freedom, stretch of stated errors."""

    reach: float = 2.0
    nugget: float = 0.3
    tail: float = 4.0
    stretch: float = 1.0


class Kriged(NamedTuple):
    """Mean and variance (in units of the field's) at new shapes, distance to the nearest, and the nearest cells.

    `mean`, `variance`, `distance` are [row]; `near` is [row, neighbour], indices of measured cells, nearest first.
    """

    mean: np.ndarray
    variance: np.ndarray
    distance: np.ndarray
    near: np.ndarray


def fitted(position: np.ndarray, left: np.ndarray, of_table: np.ndarray) -> ResidualField:
    """The field of residuals `left` [cell] at `position` [cell, axis], shared by tables up to their variance."""
    from scipy.stats import t as student  # half a second, which predictions of a fit do not pay

    scaled, near_position, near_value = [], [], []
    for t in np.unique(of_table):
        of = np.flatnonzero(of_table == t)
        if len(of) < FEWEST_CELLS:
            continue
        value = left[of] / max(float(np.std(left[of])), 1e-6)
        step = max(1, round(len(of) * len(np.unique(of_table)) / MOST_CELLS))
        asked = np.arange(0, len(of), step)
        near = np.asarray(KDTree(position[of]).query(position[of][asked], k=N_NEAR + 1)[1])[:, 1:]
        scaled.append(value[asked])
        near_value.append(value[near])
        near_position.append(position[of][np.concatenate([asked[:, None], near], axis=1)])
    if not scaled:
        return ResidualField()
    value, beside, place = np.concatenate(scaled), np.concatenate(near_value), np.concatenate(near_position)
    best = (-np.inf, ResidualField())
    for reach in REACHES:
        for nugget in NUGGETS:
            mean, variance = _conditional(place[:, 0], place[:, 1:], beside, reach, nugget)
            error = (value - mean) / np.sqrt(variance)
            for tail in TAILS:
                scale = _scale(error, tail)
                score = float(np.sum(student.logpdf(error / scale, tail) - np.log(scale) - 0.5 * np.log(variance)))
                best = max(best, (score, ResidualField(reach, nugget, tail, scale)))
    return best[1]


def _scale(error: np.ndarray, tail: float) -> float:
    """Scale of a Student-t by its 90% point, which is what intervals are judged by."""
    from scipy.stats import t as student

    return max(float(np.quantile(np.abs(error), 0.9)) / float(student.ppf(0.95, tail)), 1e-3)


def krige(position: np.ndarray, left: np.ndarray, at: np.ndarray, field: ResidualField) -> Kriged:
    """The field at new places `at` [row, axis], from the measured cells of one table."""
    count = min(N_NEAR, len(position))
    distance, near = (np.asarray(x).reshape(len(at), count) for x in KDTree(position).query(at, k=count))
    mean, variance = _conditional(at, position[near], left[near], field.reach, field.nugget)
    return Kriged(mean, variance, distance[:, 0], near)


def weights(at: np.ndarray, place: np.ndarray, field: ResidualField) -> np.ndarray:
    """Weights of the values at places [row, neighbour, axis] in the prediction at `at` [row, axis]; [row, neighbour]."""
    return _solved(at, place, field.reach, field.nugget)[0]


def _conditional(
    at: np.ndarray, place: np.ndarray, value: np.ndarray, reach: float, nugget: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance [row] at `at` [row, axis], given values [row, neighbour] at places [row, neighbour, axis]."""
    weight, to = _solved(at, place, reach, nugget)
    return np.sum(weight * value, axis=1), np.maximum(1.0 - np.sum(weight * to, axis=1), nugget / 2.0)


def _solved(at: np.ndarray, place: np.ndarray, reach: float, nugget: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the neighbours and covariances with them, [row, neighbour]."""
    between = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1)
    covariance = (1.0 - nugget) * np.exp(-between / reach) + nugget * np.eye(place.shape[1])
    to = (1.0 - nugget) * np.exp(-np.linalg.norm(place - at[:, None], axis=-1) / reach)
    return np.linalg.solve(covariance, to[..., None])[..., 0], to
