"""Systems drawn from a population: log probability of what they showed, their own parameters summed out over a grid."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import betaln, logsumexp

LOG_2PI = float(np.log(2.0 * np.pi))


def of_pairs(theta: Array, log_weight: Array, mean: Array, sd: Array) -> Array:
    """Log probability by system, [..., system], of grids theta [..., system, point, 2] under Normal(mean, sd) [..., 2]."""
    apart = (theta - mean[..., None, None, :]) / sd[..., None, None, :]
    prior = -0.5 * (apart**2).sum(axis=-1) - jnp.log(sd).sum(axis=-1)[..., None, None] - LOG_2PI
    return logsumexp(log_weight + prior, axis=-1)


def of_line(at: Array, log_weight: Array, mean: Array, sd: Array) -> Array:
    """The same of one parameter: at [..., system, place], mean and sd [...]."""
    apart = (at - mean[..., None, None]) / sd[..., None, None]
    return logsumexp(log_weight - 0.5 * apart**2 - jnp.log(sd)[..., None, None] - 0.5 * LOG_2PI, axis=-1)


def of_shares(n_multi: Array, n_event: Array, share: Array, concentration: Array) -> Array:
    """Log probability by system that these events in this order took several nodes: shares are Beta, integrated out."""
    a, b = share * concentration, (1.0 - share) * concentration
    return betaln(a + n_multi, b + n_event - n_multi) - betaln(a, b)
