"""Groups drawn from a population: log probability of what each showed, its own parameters summed out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln, logsumexp

from ..repairs.hierarchy import LOG_2PI


def of_spells(trait: Any, theta: Any, log_weight: Any, site: Mapping[str, Any]) -> Array:
    """Log probability of the spells of every group, [group].

    Args:
        trait: of every group, [group, trait].
        theta: parameters, [shape, group, point, 1 or 2].
        log_weight: log(likelihood x volume) there, [shape, group, point].
        site: the population: `location`, `slope` [trait], `between_sd`, and where there are two parameters `log_spread` and
            `spread_sd`; `shape_share` [shape] where there are several.
    """
    mean = site["location"] + jnp.asarray(trait) @ site["slope"]
    sd = site["between_sd"]
    density = -0.5 * ((theta[..., 0] - mean[:, None]) / sd) ** 2 - jnp.log(sd) - 0.5 * LOG_2PI
    if theta.shape[-1] > 1:
        apart = (theta[..., 1] - site["log_spread"]) / site["spread_sd"]
        density = density - 0.5 * apart**2 - jnp.log(site["spread_sd"]) - 0.5 * LOG_2PI
    by_shape = logsumexp(log_weight + density, axis=-1)
    if len(by_shape) == 1:
        return by_shape[0]
    return logsumexp(by_shape + jnp.log(site["shape_share"])[:, None], axis=0)


def of_losses(counts: Any, mean: Any, concentration: Any) -> Array:
    """Log probability that losses [group, class] in this order took one, some or all; shares are Dirichlet, integrated out."""
    a = mean * concentration
    n = counts.sum(axis=-1)
    by_class = gammaln(a + counts) - gammaln(a)
    return by_class.sum(axis=-1) + gammaln(concentration) - gammaln(concentration + n)
