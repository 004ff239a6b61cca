"""Does the overlap model beat "no slowdown" on kernels it has not seen? Asked inside every fit, of the kernels of that fit.

Each kernel is left out in turn, the posterior mode of the very same program is found from the others (all folds at once, Adam),
and the left-out rows are predicted by the factor with the smallest expected relative error. The model has to win by more than two
standard errors over kernels; otherwise kernels that were not measured are predicted without slowdown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from numpyro.optim import Adam

from . import mixture as mixture
from .data import OverlapData

N_STEP = 300
STEP_SIZE = 0.03  # unconstrained scale: 300 steps reach 9 away
N_DRAW = 400  # of kernel effects and mixture: a median's standard error of 2.5 % in probability
MARGIN = 2.0  # standard errors: chance alone passes in one of forty fits
FEWEST = 5  # kernels: with fewer, a standard error over kernels says nothing

Program = Callable[[OverlapData], None]


def decide(data: OverlapData, program: Program, start: Callable[[OverlapData], dict[str, Any]]) -> OverlapData:
    """`data` with the decision and the figures it rests on; runs in float64 whatever the global setting."""
    beside = data.overlap_ratio > 0.0
    judged = np.unique(data.kernel[beside])
    if len(judged) < FEWEST:
        return replace(data, n_judged=len(judged))
    rows = np.flatnonzero(beside)
    fold = np.searchsorted(judged, data.kernel[rows])
    arrays = {field.name: value for field in fields(data) if isinstance(value := getattr(data, field.name), np.ndarray)}
    used = data.kernel[None, :] != judged[:, None]
    with jax.enable_x64(True):
        predicted = np.asarray(_left_out_points(program, data.kernels, arrays, start(data), used, rows, fold))
    return replace(data, n_judged=len(judged), **_compare(predicted, np.exp(data.log_factor[rows]), fold))


def _compare(predicted: np.ndarray, measured: np.ndarray, fold: np.ndarray) -> dict[str, Any]:
    """Mean relative errors over rows, the gain, and its standard error with kernels as the units."""
    error_model, error_none = np.abs(predicted / measured - 1.0), np.abs(1.0 / measured - 1.0)
    difference = error_none - error_model
    n_fold = int(fold.max()) + 1
    gain = float(difference.mean())
    by_kernel = np.bincount(fold, weights=difference - gain, minlength=n_fold)
    error = float(np.sqrt(n_fold / (n_fold - 1) * np.sum(by_kernel**2)) / len(fold))
    return {
        "mape_model": float(error_model.mean()),
        "mape_none": float(error_none.mean()),
        "gain": gain,
        "gain_error": error,
        "beats": bool(gain > MARGIN * error and gain > 0.0),
    }


@partial(jax.jit, static_argnames=("program", "kernels"))
def _left_out_points(
    program: Program,
    kernels: tuple[str, ...],
    arrays: dict[str, Array],
    start: dict[str, Any],
    used: Array,
    rows: Array,
    fold: Array,
) -> Array:
    """Predicted factors of `rows`, each from the fold without its kernel, [row]; `used` is [fold, row]."""

    def mode(used: Array) -> dict[str, Array]:
        data = OverlapData(kernels, **{**arrays, "used": used})  # pyright: ignore[reportArgumentType]
        energy = partial(potential_energy, program, (data,), {})
        return constrain_fn(program, (data,), {}, _mode(energy, unconstrain_fn(program, (data,), {}, start)))

    site = {name: values[fold] for name, values in jax.vmap(mode)(used).items()}
    features, log_duration, ratio = (arrays[name][rows] for name in ("features", "log_duration", "overlap_ratio"))
    return jax.vmap(_point)(site, features, log_duration, ratio, jax.random.split(jax.random.key(1), len(rows)))


def _mode(energy: Callable[[dict[str, Array]], Any], start: dict[str, Array]) -> dict[str, Array]:
    optimiser = Adam(STEP_SIZE)

    def step(_: int, state: Any) -> Any:
        return optimiser.update(jax.grad(energy)(optimiser.get_params(state)), state)

    return optimiser.get_params(jax.lax.fori_loop(0, N_STEP, step, optimiser.init(start)))


def _point(site: dict[str, Array], features: Array, log_duration: Array, overlap_ratio: Array, key: Array) -> Array:
    """Point prediction of one row as if its kernel were new."""
    k_logit, k_extra, k_factor = jax.random.split(key, 3)
    new = partial(jax.random.normal, shape=(N_DRAW,))
    at = mixture.terms(site, features, log_duration, new(k_logit), new(k_extra))
    factors = jnp.sort(mixture.draw_factor(k_factor, overlap_ratio, at, (N_DRAW,), noisy=False))
    weight = jnp.cumsum(1.0 / factors)
    return factors[jnp.argmax(weight >= 0.5 * weight[-1])]
