"""Quantiles of the maximum over replicas on traced times: all tables at once, so that one sort and one search are compiled."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpy.typing import NDArray

from .._arrays import Values
from .._typing import Floats


def traced_quantiles(
    table_s: Float[Array, "grid column"], weight: Values, wanted: Floats, low: NDArray[np.intp], fraction: Floats
) -> Float[Array, " sample"]:
    """Times that columns exceed with the wanted probabilities [sample], between two neighbouring tables.

    Args:
        table_s: times of the columns, seconds, at increasing regime factors.
        weight: [column] importance weights.
        wanted: [sample] survival probabilities.
        low, fraction: [sample] table below, and how far on the way to the next.
    """
    share = jnp.asarray(weight, float) / weight.sum()

    def at(time_s: Float[Array, " column"]) -> Float[Array, " sample"]:
        order = jnp.argsort(time_s)[::-1]
        mass = share[order]
        return jnp.interp(jnp.asarray(wanted, float), jnp.cumsum(mass) - 0.5 * mass, time_s[order])

    every_s = jax.vmap(at)(table_s)  # [grid, sample]
    sample = np.arange(len(wanted))
    high = np.minimum(low + 1, len(table_s) - 1)
    return every_s[low, sample] + fraction * (every_s[high, sample] - every_s[low, sample])
