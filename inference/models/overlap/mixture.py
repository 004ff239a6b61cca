"""Time under communication over time alone: most calls keep their time, some are held up, by how much is wide open.

    log(t_overlapped / t_alone) ~ (1 - p) StudentT(nu, overlap x shift, noise) + p Gamma(shape, mean = overlap x extra)

`p` and `extra` depend on the kernel (its own effect) and its features. Pure functions of site values, for the NumPyro program,
for draws of it, and for the internal leave-one-kernel-out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

LONGEST = 4.6  # log of 100: no kernel of the open data was held up by more than 30 times; keeps heavy tails finite


class Terms(NamedTuple):
    """Parameters of the mixture by row; any broadcastable shapes.

    Attributes:
        logit: log odds that the call is held up.
        extra: mean log factor of a call that is held up, fully overlapped.
        shape: of the Gamma distribution, above 1.
        shift: mean log factor of other calls, fully overlapped.
        noise, tail: scale and degrees of freedom of measurement noise.
    """

    logit: Array
    extra: Array
    shape: Array
    shift: Array
    noise: Array
    tail: Array


def terms(site: Mapping[str, Any], features: Any, log_duration: Any, effect_logit: Any, effect_extra: Any) -> Terms:
    """The mixture of rows with these features [row, feature] and standardised kernel effects [row], at one draw."""
    slope_logit = site["slope_logit_scale"] * site["slope_logit_raw"]
    slope_extra = site["slope_extra_scale"] * site["slope_extra_raw"]
    logit = site["base_logit"] + features @ slope_logit + site["kernel_logit_scale"] * effect_logit
    log_extra = site["base_log_extra"] + features @ slope_extra + site["kernel_extra_scale"] * effect_extra
    return Terms(
        logit=logit,
        extra=jnp.exp(jnp.clip(log_extra, -12.0, jnp.log(LONGEST))),
        shape=1.0 + site["shape_above_one"],
        shift=site["shift"],
        noise=jnp.exp(site["log_noise"] + site["noise_slope"] * log_duration),
        tail=1.0 + site["tail_above_one"],
    )


def log_density(log_factor: Array, overlap_ratio: Array, at: Terms) -> Array:
    """Log density of log factors, [row]."""
    beside = overlap_ratio > 0.0
    calm = dist.StudentT(at.tail, overlap_ratio * at.shift, at.noise).log_prob(log_factor)
    mean = jnp.where(beside, overlap_ratio, 1.0) * at.extra
    slower = log_factor > 0.0
    held = dist.Gamma(at.shape, at.shape / mean).log_prob(jnp.where(slower, log_factor, 1.0))
    both = jnp.logaddexp(
        jax.nn.log_sigmoid(-at.logit) + calm, jnp.where(slower, jax.nn.log_sigmoid(at.logit) + held, -jnp.inf)
    )
    return jnp.where(beside, jnp.where(slower, both, jax.nn.log_sigmoid(-at.logit) + calm), calm)


def draw_factor(key: Array, overlap_ratio: Array, at: Terms, shape: tuple[int, ...], noisy: bool) -> Array:
    """Factors t_overlapped / t_alone; without noise never below 1, with it as one measurement would show them."""
    k_held, k_extra, k_noise = jax.random.split(key, 3)
    held = (jax.random.uniform(k_held, shape) < jax.nn.sigmoid(at.logit)) & (overlap_ratio > 0.0)
    gamma = jax.random.gamma(k_extra, jnp.broadcast_to(at.shape, shape))
    log_held = jnp.minimum(overlap_ratio * at.extra * gamma / at.shape, LONGEST)
    log_calm = overlap_ratio * at.shift
    if noisy:
        log_calm = log_calm + at.noise * jax.random.t(k_noise, jnp.broadcast_to(at.tail, shape), shape)
    return jnp.exp(jnp.where(held, log_held, log_calm))


def best_for_mape(factors: np.ndarray) -> np.ndarray:
    """The factor per row with the smallest expected |factor / true - 1| over [draw, row]: a median with weights 1/factor."""
    order = np.sort(np.asarray(factors, dtype=np.float64), axis=0)
    weight = np.cumsum(1.0 / order, axis=0)
    at = np.argmax(weight >= 0.5 * weight[-1], axis=0)
    return np.take_along_axis(order, at[None], axis=0)[0]
