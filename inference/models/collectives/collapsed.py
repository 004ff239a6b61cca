"""Residuals of the law, integrated out: what the sampler sees are the law's parameters and the spreads.

    off[cell] = residual(curve, x) + unevenness
    residual(curve) = residual(curve one scale below) + scale[curve] exp(profile) smooth z,    z ~ N(0, 1) at the knots

Given the spreads all is normal: a filter runs along the curves of a fabric, and what it leaves at each is one update by the
cells there. The same filter, run backwards with draws, gives the residuals of each draw of the posterior.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from prism_jax._typing import Floats

from ...engine.spd import inverse
from .data import CollectivesData


def log_likelihood(data: CollectivesData, off: Any, variance: Any, scale: Any, profile: Any) -> Any:
    """Log density of the cells, up to a constant.

    Args:
        off: log seconds less those of the law [cell].
        variance: of unevenness [cell].
        scale: of the step to each curve [curve].
        profile: log factor of steps at the knots [knot].
    """
    n_curve, n_knot = data.curve_from.shape[0], data.knots.shape[0]
    at_cell = _mixed(data) @ (jnp.exp(profile)[:, None] * data.smooth)
    weight = (jnp.arange(n_curve)[:, None] == data.curve) / variance
    precision = jnp.swapaxes(weight[:, :, None] * at_cell, 1, 2) @ at_cell
    score = (weight * off) @ at_cell
    first = jnp.asarray(data.curve_from) < 0
    eye = jnp.eye(n_knot)

    def update(mean: Any, prior: Any, prior_volume: Any, c: Any) -> tuple[tuple[Array, Array], Array]:
        after, volume = inverse(prior + precision[c])
        left = score[c] - precision[c] @ mean
        shift = after @ left
        quadratic = 2.0 * mean @ score[c] - mean @ precision[c] @ mean + left @ shift
        return (mean + shift, after), 0.5 * (quadratic - volume - prior_volume)

    def begin(c: Any) -> tuple[tuple[Array, Array], Array]:
        return update(jnp.zeros(n_knot), eye / scale[c] ** 2, 2.0 * n_knot * jnp.log(scale[c]), c)

    def step(before: tuple[Array, Array], c: Any) -> tuple[tuple[Array, Array], Array]:
        mean, covariance = before
        return jax.lax.cond(first[c], begin, lambda c: update(mean, *inverse(covariance + scale[c] ** 2 * eye), c), c)

    smallest, density = begin(0)
    if n_curve > 1:
        _, others = jax.lax.scan(step, smallest, jnp.arange(1, n_curve))
        density += jnp.sum(others)
    return density - 0.5 * jnp.sum(off**2 / variance + jnp.log(variance))


def residuals(
    data: CollectivesData, off: Floats, variance: Floats, scale: Floats, profile: Floats, rng: np.random.Generator
) -> Floats:
    """Draws of the residuals at the knots [draw, curve, knot]; arguments as those of `log_likelihood`, with a first axis [draw].

    The filter once more, in NumPy over all draws at a time, and back along the curves.
    """
    n_draw, n_knot = len(off), len(data.knots)
    shape = np.exp(profile)[:, :, None] * data.smooth
    mean, covariance = np.zeros((n_draw, n_knot)), np.zeros((n_draw, n_knot, n_knot))
    mixed, filtered = np.asarray(_mixed(data)), []
    for c in range(len(data.curve_from)):
        here = data.curve == c
        at_cell = mixed[here] @ shape
        weighted = np.swapaxes(at_cell, 1, 2) / variance[:, None, here]
        if data.curve_from[c] < 0:
            mean, covariance = np.zeros_like(mean), np.zeros_like(covariance)
        prior = np.linalg.inv(covariance + scale[:, c, None, None] ** 2 * np.eye(n_knot))
        covariance = np.asarray(np.linalg.inv(prior + weighted @ at_cell), dtype=np.float64)
        left = off[:, here] - _times(at_cell, mean)
        mean = mean + _times(covariance, _times(weighted, left))
        filtered.append((mean, covariance))
    white = np.zeros((n_draw, len(filtered), n_knot))
    for c in reversed(range(len(filtered))):
        mean, covariance = filtered[c]
        if c + 1 < len(filtered) and data.curve_from[c + 1] >= 0:
            gain = covariance @ np.linalg.inv(covariance + scale[:, c + 1, None, None] ** 2 * np.eye(n_knot))
            mean = mean + _times(gain, white[:, c + 1] - mean)
            covariance = covariance - gain @ covariance
        factor = np.linalg.cholesky(0.5 * (covariance + np.swapaxes(covariance, 1, 2)))
        white[:, c] = mean + _times(factor, rng.standard_normal((n_draw, n_knot)))
    return white @ np.swapaxes(shape, 1, 2)


def _mixed(data: CollectivesData) -> Any:
    """What each knot adds to each cell [cell, knot]."""
    knot, here = np.arange(data.knots.shape[0]), data.knot[:, None]
    return (knot == here) * (1.0 - data.weight[:, None]) + (knot == here + 1) * data.weight[:, None]


def _times(matrix: Floats, vector: Floats) -> Floats:
    return np.einsum("...ij,...j->...i", matrix, vector)
