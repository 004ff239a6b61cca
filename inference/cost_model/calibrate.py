"""Fits of the step-time calibration: the mode of the posterior, and a normal law around it with the expected curvature.

The time of a step has kinks (what hides, what is slowest) and rows that are far off bend the density upwards, so that second
differences at the mode say little. The Fisher information is what such rows would say on average, and is never negative:

    H = prior + sum_rows weight (nu + 1) / ((nu + 3) scale^2) J J^T          J = d expected / d parameters

Rows of large sites count as `MAX_ROWS` in all, and a few hundred say what thousands do (`few_of_each`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray
from scipy.optimize import minimize

from prism_jax.calibration.calibration import Calibration
from prism_jax.core.errors import FitError

from ..engine.diagnostics import one_blas_thread
from ..engine.program import ModelProgram, Sites, constrained, program, traced
from .step_times import (
    EXPECTED,
    MAX_ROWS,
    OF_ROW,
    OF_SCALE,
    SCALE,
    TERMS,
    Assumed,
    StepTimesData,
    StepTimesModel,
    calibration_of,
    field_of,
    known_of,
)

MOST = 150


def rows_of(data: StepTimesData, rows: NDArray[np.intp]) -> StepTimesData:
    """Selects some rows; names that none of them has are dropped."""
    arrays = {
        item.name: getattr(data, item.name)[rows]
        for item in fields(data)
        if isinstance(getattr(data, item.name), np.ndarray)
    }
    names = {}
    for level, known in data.names.items():
        field = field_of(level)
        index = arrays[field]
        always = [i for i, name in enumerate(known) if name in known_of(level)]
        used = np.unique([*index[index < len(known)], *always]).astype(int)
        place = np.full(len(known) + 1, len(used))
        place[used] = np.arange(len(used))
        arrays[field] = place[index]
        names[level] = tuple(known[i] for i in used)
    count = np.bincount(arrays["site"], minlength=len(names["site"]))[arrays["site"]]
    return replace(data, **arrays | {"weight": np.minimum(1.0, MAX_ROWS / count)}, names=names)


def few_of_each(owner: NDArray[Any], most: int = MOST, seed: int = 0) -> NDArray[np.intp]:
    """Rows, in order, of which no owner [row] has more than `most`; those of larger ones by chance.

    Which ones depends on the order of the owner's rows; `folds.few_rows` gives them one order.
    """
    rng = np.random.default_rng(seed)
    kept = [_some(np.flatnonzero(owner == name), most, rng) for name in np.unique(owner)]
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.intp)


def _some(rows: NDArray[np.intp], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return rows if len(rows) <= most else rng.choice(rows, most, replace=False)


N_DRAW = 128
MAX_ITERATION = 400
TOLERANCE = 1e-7  # of the log density, relative


class Calibrator:
    """Fits to rows of one table under several weights: all have the same shapes, so that what is compiled serves every one.

    Args:
        data: all rows, with all names.
        terms: deviations that are fitted; others are zero.
    """

    def __init__(self, data: StepTimesData, terms: tuple[Assumed, ...] = TERMS) -> None:
        self._terms = terms
        with jax.enable_x64(True):
            self._made = program(StepTimesModel(terms), data, jax.random.key(0))  # pyright: ignore[reportArgumentType]

    @one_blas_thread
    def fit(
        self, data: StepTimesData, *, key: jax.Array, n_draw: int = N_DRAW, record: Mapping[str, Any] | None = None
    ) -> Calibration:
        """The calibration that measured steps amount to.

        Args:
            data: the rows of the table under weights of their own; those without weight have no part in it, and members that
                only they belong to stay unknown.
            key: seed of the draws.
            n_draw: draws that are kept; their mean is the mode.

        Raises:
            FitError: no mode is found.
        """
        with jax.enable_x64(True):
            _, draw_key = jax.random.split(key)
            made = self._made.given(traced(data)[0])
            at = _mode(made)
            scale = np.linalg.inv(np.linalg.cholesky(self._information(made, data, at))).T
            noise = np.asarray(jax.random.normal(draw_key, (n_draw, made.n_dim), dtype=float))
            noise = noise - noise.mean(axis=0)
            _, unravel = made.ravel()
            draws = constrained(made, jax.vmap(unravel)(jnp.asarray(at + noise @ scale.T)))
        return calibration_of(data, draws, record or {}, self._terms)

    def _information(self, made: ModelProgram, data: StepTimesData, at: np.ndarray) -> np.ndarray:
        """[parameter, parameter] of the prior and of the rows, at unconstrained parameters."""
        _, unravel = made.ravel()
        (place, width), (log_scale, sites) = self._slopes(jnp.asarray(at), made.arrays)  # [row, parameter]
        weight = np.asarray(data.weight) * OF_ROW
        of_place = np.asarray(place) * np.sqrt(weight / np.exp(2.0 * np.asarray(log_scale)))[:, None]
        of_width = np.asarray(width) * np.sqrt(np.asarray(data.weight) * OF_SCALE)[:, None]
        return of_place.T @ of_place + of_width.T @ of_width + np.diag(_prior(unravel(jnp.asarray(at)), sites))

    @cached_property
    def _slopes(self) -> Callable[..., Any]:
        """(parameters, arrays) -> derivatives of what is expected and of its log scale [row, parameter], and all sites."""
        made = self._made
        _, unravel = made.ravel()

        def law(vector: Any, given: Any) -> tuple[tuple[Any, Any], Any]:
            sites = made.constrain(given, unravel(vector))
            log_scale = jnp.log(sites[SCALE])
            return (sites[EXPECTED], log_scale), (log_scale, sites)  # twice, so that the derivative keeps the value

        return jax.jit(jax.jacfwd(law, has_aux=True))


def _mode(made: ModelProgram) -> np.ndarray:
    flat, _ = made.ravel()
    options = {"maxiter": MAX_ITERATION, "maxcor": 30, "ftol": TOLERANCE}
    found = minimize(made.energy, flat, jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(found.fun):
        raise FitError(f"the calibration did not converge on these steps ({found.message}); check the measured times.")
    return found.x


def _prior(unconstrained: Sites, sites: Sites) -> np.ndarray:
    """[parameter] curvature of the prior: standard normals, and what hangs on a spread that is itself sampled."""
    given: dict[str, Any] = {name: jnp.ones_like(value) for name, value in unconstrained.items()}
    given |= StepTimesModel.prior_precision(sites)
    flat, _ = ravel_pytree({name: jnp.broadcast_to(given[name], one.shape) for name, one in unconstrained.items()})
    return np.asarray(flat)
