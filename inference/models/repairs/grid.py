"""A system's likelihood on a grid of its own parameters, so that they are integrated out of every fit by a sum.

The grid spans 4.2 standard deviations of the likelihood, times a broad law that keeps it finite where there are few events, in
steps of 0.6: a Gaussian is then integrated to 3e-5, and under a population three times narrower than the likelihood to 1 %.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

Grid = tuple[np.ndarray, np.ndarray]
"""Points [point, dim] and log(likelihood x volume) there [point]."""
LogLikelihood = Callable[[np.ndarray], np.ndarray]
REACH, STEP = 4.2, 0.6  # standard deviations
SIDE = np.arange(-REACH, REACH + STEP / 2, STEP)
DIFFERENCE = 1e-3


def around_likelihood(log_likelihood: LogLikelihood, centre: np.ndarray, width: np.ndarray) -> Grid:
    """Points and log weights of the integral of a likelihood times any smooth density.

    Args:
        log_likelihood: of points [point, dim], [point].
        centre, width: of the broad law, [dim].
    """

    def energy(at: np.ndarray) -> np.ndarray:
        return 0.5 * (((at - centre) / width) ** 2).sum(axis=-1) - log_likelihood(at)

    found = minimize(
        lambda one: float(energy(one[None])[0]), centre, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-4}
    )
    scale = np.linalg.cholesky(np.linalg.inv(_curvature(energy, found.x, width)))
    sides = np.meshgrid(*[SIDE] * len(centre), indexing="ij")
    points = found.x + np.stack([side.ravel() for side in sides], axis=1) @ scale.T
    volume = np.log(np.diag(scale)).sum() + len(centre) * np.log(STEP)
    return points, log_likelihood(points) + volume


def _curvature(energy: Callable[[np.ndarray], np.ndarray], at: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Second derivatives; the broad law's where differences are not positive definite."""
    step = DIFFERENCE * np.eye(len(at))
    pairs = [
        energy((at + sign_i * step[i] + sign_j * step[j])[None])[0] * sign_i * sign_j
        for i in range(len(at))
        for j in range(len(at))
        for sign_i in (1, -1)
        for sign_j in (1, -1)
    ]
    matrix = np.array(pairs).reshape(len(at), len(at), 4).sum(axis=2) / (4.0 * DIFFERENCE**2)
    value = np.linalg.eigvalsh(matrix)
    return matrix if np.all(np.isfinite(value)) and value[0] > 0.0 else np.diag(1.0 / width**2)
