"""Fits of the step-time calibration: the mode of the posterior, and a normal law around it with the expected curvature.

The time of a step has kinks (what hides, what is slowest) and rows that are far off bend the density upwards, so that second
differences at the mode say little. The Fisher information is what such rows would say on average, and is never negative:

    H = prior + sum_rows weight (nu + 1) / ((nu + 3) scale^2) J J^T          J = d expected / d parameters
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from prism_jax.calibration.calibration import DEGREES, Calibration
from prism_jax.errors import FitError

from ..engine.program import Program, Sites, constrained, program
from ..engine.threads import one_blas_thread
from .step_times import EXPECTED, SCALE, StepTimes, calibration_of
from .step_times_data import StepTimesData

N_DRAW = 128
MAX_ITERATION = 400
TOLERANCE = 1e-7  # of the log density, relative


@one_blas_thread
def calibrate(
    data: StepTimesData, *, key: jax.Array, n_draw: int = N_DRAW, record: Mapping[str, Any] | None = None
) -> Calibration:
    """The calibration that measured steps amount to.

    Args:
        data: rows with their outlines.
        key: seed of the draws.
        n_draw: draws that are kept; their mean is the mode.

    Raises:
        FitError: no mode is found.
    """
    with jax.enable_x64(True):
        start_key, draw_key = jax.random.split(key)
        made = program(StepTimes(), data, start_key)  # pyright: ignore[reportArgumentType]
        at = _mode(made)
        scale = np.linalg.inv(np.linalg.cholesky(_information(made, data, at))).T
        noise = np.asarray(jax.random.normal(draw_key, (n_draw, made.n_dim), dtype=float))
        noise = noise - noise.mean(axis=0)
        _, unravel = made.ravel()
        draws = constrained(made, jax.vmap(unravel)(jnp.asarray(at + noise @ scale.T)))
    return calibration_of(data, draws, record or {})


def _mode(made: Program) -> np.ndarray:
    flat, _ = made.ravel()
    options = {"maxiter": MAX_ITERATION, "maxcor": 30, "ftol": TOLERANCE}
    found = minimize(made.energy, flat, jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(found.fun):
        raise FitError(f"the calibration did not converge on these steps ({found.message}); check the measured times.")
    return found.x


def _information(made: Program, data: StepTimesData, at: np.ndarray) -> np.ndarray:
    """[parameter, parameter] of the prior and of the rows, at unconstrained parameters."""
    _, unravel = made.ravel()

    def law(vector: Any) -> tuple[tuple[Any, Any], Any]:
        sites = made.constrain(made.arrays, unravel(vector))
        log_scale = jnp.log(sites[SCALE])
        return (sites[EXPECTED], log_scale), log_scale  # twice, so that the derivative keeps the value

    (place, width), log_scale = jax.jit(jax.jacfwd(law, has_aux=True))(jnp.asarray(at))  # [row, parameter]
    weight = np.asarray(data.weight) * (DEGREES + 1.0) / (DEGREES + 3.0)
    of_place = np.asarray(place) * np.sqrt(weight / np.exp(2.0 * np.asarray(log_scale)))[:, None]
    of_width = np.asarray(width) * np.sqrt(np.asarray(data.weight) * 2.0 * DEGREES / (DEGREES + 3.0))[:, None]
    return of_place.T @ of_place + of_width.T @ of_width + np.diag(_prior(made, unravel(jnp.asarray(at))))


def _prior(made: Program, sites: Sites) -> np.ndarray:
    """[parameter] curvature of the prior: standard normals, and what hangs on a spread that is itself sampled."""
    given: dict[str, Any] = {name: jnp.ones_like(value) for name, value in sites.items()}
    given |= StepTimes.prior_precision(made.constrain(made.arrays, sites))
    flat, _ = ravel_pytree({name: jnp.broadcast_to(given[name], value.shape) for name, value in sites.items()})
    return np.asarray(flat)
