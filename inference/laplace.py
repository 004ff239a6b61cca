"""The mode of the posterior, and the normal approximation around it: where `map` ends and `svi` begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from prism_jax.errors import FitError

from .importance import USELESS_K, smoothed_weights
from .program import Program, constrained
from .sampled import Sampled, independent
from .settings import Settings

MAX_ITERATION = 2000
DIFFERENCE = 1e-5
SMALLEST_CURVATURE = 1e-2  # unconstrained sites are of order one; a flatter direction is held at ten


@dataclass(frozen=True)
class Mode:
    """Attributes:
    at: unconstrained mode [dim].
    scale: lower Cholesky factor of the covariance there [dim, dim].
    """

    at: np.ndarray
    scale: np.ndarray


Energy = Callable[[np.ndarray], tuple[float, np.ndarray]]


def energy(made: Program) -> Energy:
    """Unconstrained vector [dim] -> negative log joint density and its gradient; compiled once, used for all that follows."""
    _, unravel = made.ravel()
    both = jax.jit(jax.value_and_grad(lambda vector, given: made.potential(given, unravel(vector))))

    def call(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = both(jnp.asarray(vector), made.arrays)
        return float(value), np.asarray(slope, dtype=float)

    return call


def mode(made: Program) -> Mode:
    """The mode and the curvature there.

    Raises:
        FitError: none is found.
    """
    call = energy(made)
    flat, _ = made.ravel()
    found = minimize(call, flat, jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATION, "maxcor": 30})
    if not np.isfinite(found.fun):
        raise FitError(f"the posterior has no mode to be found ({found.message}). Use --method nuts.")
    return Mode(found.x, _scale(_hessian(call, found.x)))


def start_widths(made: Program) -> Mode:
    """The start, with the widths [dim] of the posterior there along each coordinate, as if it were a mode."""
    flat, _ = made.ravel()
    value = np.diag(_hessian(energy(made), flat))
    usable = np.isfinite(value) & (value > SMALLEST_CURVATURE)
    return Mode(flat, np.diag(np.where(usable, 1.0 / np.sqrt(np.where(usable, value, 1.0)), 1.0)))


def _hessian(call: Energy, at: np.ndarray) -> np.ndarray:
    """Central differences of the gradient: no second compilation."""
    columns = []
    for i in range(len(at)):
        step = np.zeros_like(at)
        step[i] = DIFFERENCE * max(1.0, abs(at[i]))
        columns.append((call(at + step)[1] - call(at - step)[1]) / (2.0 * step[i]))
    matrix = np.array(columns)
    return 0.5 * (matrix + matrix.T)


def _scale(curvature: np.ndarray) -> np.ndarray:
    """Cholesky factor of the inverse, flat or upward-bent directions held at ten."""
    value, vector = np.linalg.eigh(curvature)
    safe = np.where(value > SMALLEST_CURVATURE, value, SMALLEST_CURVATURE)
    return np.linalg.cholesky((vector / safe) @ vector.T)


def fit_map(made: Program, settings: Settings, key: jax.Array) -> Sampled:
    """Weighted draws of the normal approximation at the mode."""
    found = mode(made)
    draw_key, weight_key = jax.random.split(key)
    noise = np.asarray(jax.random.normal(draw_key, (settings.n_approximate_draw, len(found.at))))
    return weighted(made, found.at + noise @ found.scale.T, noise, weight_key)


def weighted(made: Program, z: np.ndarray, noise: np.ndarray, key: jax.Array) -> Sampled:
    """Draws `z` [draw, dim] of a normal law, made of standard normal `noise`, resampled by their smoothed importance weights."""
    weight, k_hat = smoothed_weights(log_density(made, z) + 0.5 * (noise**2).sum(axis=1))
    if k_hat < USELESS_K:
        z = z[np.asarray(jax.random.choice(key, len(z), (len(z),), p=jnp.asarray(weight)))]
    _, unravel = made.ravel()
    return independent(constrained(made, jax.vmap(unravel)(jnp.asarray(z))), k_hat)


def log_density(made: Program, z: np.ndarray) -> np.ndarray:
    """Log joint density [draw] of unconstrained vectors [draw, dim]."""
    _, unravel = made.ravel()
    each = jax.jit(
        lambda vectors, given: jax.lax.map(lambda v: made.potential(given, unravel(v)), vectors, batch_size=16)
    )
    return -np.asarray(each(jnp.asarray(z), made.arrays))
