"""Systems drawn from a population: log probability of what they showed, their own parameters summed out over a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import betaln, logsumexp

from ..durations import of_line, of_pairs
from .data import RepairsData


class LogProbabilities(NamedTuple):
    """By system: of times under the model's and the exponential law [quantity, system], of sizes, of which nodes [system]."""

    times: Array
    exponential: Array
    sizes: Array
    which: Array


def log_probabilities(data: RepairsData, site: Mapping[str, Any]) -> LogProbabilities:
    """What the systems showed, at one draw of the population."""
    several = jnp.asarray(data.n_node) > 1.0
    mean = jnp.stack([site["location"], site["log_spread"]], axis=-1)
    sd = jnp.stack([site["between_sd"], site["spread_sd"]], axis=-1)
    by_law = of_pairs(jnp.asarray(data.theta), jnp.asarray(data.log_weight), mean, sd)
    share = jnp.log(jnp.stack([site["weibull"], 1.0 - site["weibull"]]))[..., None]
    line, line_weight = jnp.asarray(data.median), jnp.asarray(data.median_log_weight)
    exponent, alike = jnp.asarray(data.exponent), jnp.asarray(data.alike)
    shares = of_shares(jnp.asarray(data.n_multi), jnp.asarray(data.n_event), site["share"], site["concentration"])
    sizes = of_line(exponent, jnp.asarray(data.exponent_log_weight), site["exponent"], site["exponent_sd"])
    which = of_line(alike, jnp.asarray(data.alike_log_weight), site["alike"], site["alike_sd"])
    return LogProbabilities(
        times=logsumexp(by_law + share, axis=0),
        exponential=of_line(line, line_weight, site["exponential_location"], site["exponential_sd"]),
        sizes=jnp.where(several, shares + sizes, 0.0),
        which=jnp.where(several, which, 0.0),
    )


def of_shares(n_multi: Array, n_event: Array, share: Any, concentration: Any) -> Array:
    """Log probability by system that these events in this order took several nodes: shares are Beta, integrated out."""
    a, b = share * concentration, (1.0 - share) * concentration
    return betaln(a + n_multi, b + n_event - n_multi) - betaln(a, b)
