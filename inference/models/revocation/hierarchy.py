"""Groups drawn from a population: log probability of what each showed under every family, its own parameters summed out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import gammaln, logsumexp

from ..repairs.hierarchy import LOG_2PI
from .data import RevocationData
from .laws import SHAPES_OF


class LogProbabilities(NamedTuple):
    """By group: of spells, [family, quantity, group], families as `laws.FAMILIES`; of what losses took, [group]."""

    spells: Array
    losses: Array


def log_probabilities(data: RevocationData, site: Mapping[str, Any]) -> LogProbabilities:
    """What the groups showed, at one draw of the population."""
    trait = jnp.asarray(data.trait)
    spells = [_exponential(data, site, trait)]
    for number, shapes in enumerate(SHAPES_OF.values()):
        mean = site["location"][number][:, None] + site["slope"][number] @ trait.T  # [quantity, group]
        prior = {name: site[name][number] for name in ("log_spread", "spread_sd")}
        prior |= {"mean": mean, "sd": site["between_sd"][number]}
        by_shape = [_pairs(jnp.asarray(data.theta[n]), jnp.asarray(data.log_weight[n]), **prior) for n in shapes]
        if len(shapes) == 1:
            spells.append(by_shape[0])
        else:
            share = jnp.log(jnp.moveaxis(site["shape_share"], -1, 0))[..., None]  # [shape, quantity, 1]
            spells.append(logsumexp(jnp.stack(by_shape) + share, axis=0))
    return LogProbabilities(jnp.stack(spells), _losses(jnp.asarray(data.losses), site["class"], site["concentration"]))


def _exponential(data: RevocationData, site: Mapping[str, Any], trait: Array) -> Array:
    mean = site["exponential_location"][:, None] + site["exponential_slope"] @ trait.T
    sd = site["exponential_sd"][:, None, None]
    apart = (jnp.asarray(data.median) - mean[..., None]) / sd
    weight = jnp.asarray(data.median_log_weight)
    return logsumexp(weight - 0.5 * apart**2 - jnp.log(sd) - 0.5 * LOG_2PI, axis=-1)


def _pairs(theta: Array, log_weight: Array, mean: Array, sd: Array, log_spread: Array, spread_sd: Array) -> Array:
    """[quantity, group] of grids [quantity, group, point, 2]; means [quantity, group], the rest [quantity]."""
    sd, log_spread, spread_sd = (part[:, None, None] for part in (sd, log_spread, spread_sd))
    apart = ((theta[..., 0] - mean[..., None]) / sd) ** 2 + ((theta[..., 1] - log_spread) / spread_sd) ** 2
    return logsumexp(log_weight - 0.5 * apart - jnp.log(sd * spread_sd) - LOG_2PI, axis=-1)


def _losses(counts: Array, mean: Array, concentration: Array) -> Array:
    """Log probability that these losses in this order took one, some or all: shares are Dirichlet, integrated out."""
    a = mean * concentration
    n = counts.sum(axis=-1)
    by_class = gammaln(a + counts) - gammaln(a)
    return by_class.sum(axis=-1) + gammaln(concentration) - gammaln(concentration + n)
