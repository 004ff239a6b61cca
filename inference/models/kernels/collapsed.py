"""Coefficients of all tables, integrated out: what the sampler sees are only spreads.

    y[cell] = x (w[class] + d[table]) + noise
    w ~ N(0, (class_share class_scale)^2)     d ~ N(0, table_scale^2)     noise ~ N(0, sigma[table]^2)

Given the spreads everything is normal: each table is reduced to its sums of products, d is integrated table by table, then w
class by class. The same algebra gives the coefficients' conditional mean and covariance for predictions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...engine.spd import inverse
from .data import KernelsData


class Reduced(NamedTuple):
    """The tables, each with its own deviation integrated out.

    Attributes:
        precision, score: what a table says of its class's coefficients, [table, feature, feature], [table, feature].
        covariance: of its deviation, given those, [table, feature, feature].
        log_density: of its cells at coefficients zero, plus what `score` leaves, [table].
    """

    precision: Array
    score: Array
    covariance: Array
    log_density: Array


def reduce(data: KernelsData, noise: Array, table_scale: Array) -> Reduced:
    """Integrates the tables' own deviations; `noise` is [table], `table_scale` [feature]."""
    prior = table_scale**-2.0
    h = data.xy / noise[:, None] ** 2
    covariance, log_determinant = inverse(data.xx / noise[:, None, None] ** 2 + jnp.diag(prior))
    shift = jnp.einsum("tij,tj->ti", covariance, h)
    log_density: Array = (
        -jnp.asarray(data.weight) * jnp.log(noise)
        - 0.5 * data.yy / noise**2
        - 0.5 * log_determinant
        - jnp.log(table_scale).sum()
        + 0.5 * jnp.sum(h * shift, axis=1)
    )
    precision = jnp.diag(prior) - prior[:, None] * covariance * prior  # G - G (G + P)^-1 G = P - P (G + P)^-1 P
    return Reduced(precision, prior * shift, covariance, log_density)


def log_likelihood(data: KernelsData, noise: Array, table_scale: Array, class_scale: Array) -> Array:
    """Log density of all cells given the spreads by block, up to a constant."""
    table_scale, class_scale = table_scale[data.block], class_scale[data.block]
    found = reduce(data, noise, table_scale)
    covariance, log_determinant, score = _by_class(data, found, class_scale)
    quadratic = jnp.einsum("ci,cij,cj->c", score, covariance, score)
    own = jnp.log(class_scale[None] * jnp.asarray(data.class_share)[:, None])
    of_class = 0.5 * quadratic - 0.5 * log_determinant - own.sum(axis=1)
    return found.log_density.sum() + of_class.sum()


def _by_class(data: KernelsData, found: Reduced, class_scale: Array) -> tuple[Array, Array, Array]:
    """Covariance of each class's coefficients, log determinant of its inverse, and precision times mean."""
    n_class = len(data.classes)
    prior = jnp.diag(class_scale**-2.0)[None] / jnp.asarray(data.class_share)[:, None, None] ** 2
    precision = jax.ops.segment_sum(found.precision, data.table_class, n_class) + prior
    score = jax.ops.segment_sum(found.score, data.table_class, n_class)
    return *inverse(precision), score


def coefficients(
    data: KernelsData, draws: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of class coefficients [draw, class, feature], and of class plus table coefficients [draw, table, feature]."""
    sites = zip(*(np.asarray(draws[name]) for name in ("table_scale", "class_scale", "log_noise")), strict=True)
    found = [_one_draw(data, table[data.block], one[data.block], np.exp(noise), rng) for table, one, noise in sites]
    return np.stack([of_class for of_class, _ in found]), np.stack([of_table for _, of_table in found])


def _one_draw(
    data: KernelsData, table_scale: np.ndarray, class_scale: np.ndarray, noise: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The algebra of `reduce` and `_by_class` once more, in NumPy, for given spreads."""
    prior = table_scale**-2.0
    covariance = np.linalg.inv(data.xx / noise[:, None, None] ** 2 + np.diag(prior))
    h = data.xy / noise[:, None] ** 2
    of_class = np.zeros((len(data.classes), len(prior)))
    for c in range(len(of_class)):
        of = data.table_class == c
        precision = np.diag((class_scale * data.class_share[c]) ** -2.0) + np.sum(
            np.diag(prior) - prior[:, None] * covariance[of] * prior, axis=0
        )
        score = np.sum(prior * np.einsum("tij,tj->ti", covariance[of], h[of]), axis=0)
        of_class[c] = _normal(np.linalg.inv(precision), score, rng)
    shared = of_class[data.table_class]
    right = h - np.einsum("tij,tj->ti", data.xx, shared) / noise[:, None] ** 2
    return of_class, shared + _normal(covariance, right, rng)


def _normal(covariance: np.ndarray, score: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of N(covariance score, covariance), [..., feature]."""
    symmetric = 0.5 * (covariance + np.swapaxes(covariance, -1, -2))
    factor = np.linalg.cholesky(symmetric)
    return np.einsum("...ij,...j->...i", symmetric, score) + np.einsum(
        "...ij,...j->...i", factor, rng.standard_normal(score.shape)
    )
