"""Inverse of small positive definite matrices, as models that integrate coefficients or curves out need it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


@jax.custom_jvp
def inverse(matrix: Array) -> tuple[Array, Array]:
    """Inverse and log determinant of positive definite matrices [..., n, n].

    Notes:
        LAPACK through JAX is not used: its batched factorisations run on the thread pool that also runs the loops of samplers,
        and were seen to hang on two cores.
    """
    return _swept(matrix)


@jax.custom_batching.sequential_vmap
def _swept(matrix: Array) -> tuple[Array, Array]:
    """Symmetric sweeps, which need no pivots; draw after draw where there are many, so that the matrices stay in the cache."""

    def sweep(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        swept, log_determinant = state
        row = swept[..., k, :]
        pivot = row[..., k]
        scaled = row / pivot[..., None]
        swept = swept - row[..., :, None] * scaled[..., None, :]
        swept = swept.at[..., k, :].set(scaled).at[..., :, k].set(scaled).at[..., k, k].set(-1.0 / pivot)
        return swept, log_determinant + jnp.log(pivot)

    none = jnp.zeros(matrix.shape[:-2], matrix.dtype)
    swept, log_determinant = jax.lax.fori_loop(0, matrix.shape[-1], sweep, (matrix, none))
    return -swept, log_determinant


@inverse.defjvp
def _inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    found, log_determinant = inverse(primals[0])
    product = found @ tangents[0]
    return (found, log_determinant), (-product @ found, jnp.trace(product, axis1=-2, axis2=-1))
