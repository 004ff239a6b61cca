"""Priors of a device's law: a population on unconstrained scales, and how far devices lie from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from experiments.power_fit.series import DEVICE_SITES

# Mean and standard deviation of the population's centre; standard deviation of devices around it.
# idle: logit; a tenth to a third of the limit. exponent: log(k - 1); V constant is 1, V ~ f is 3. floor: logit; voltage is at its
# least below 60 to 90% of the top clock. held: log; limits bind at 80 to 100% of it. sharpness: log; clocks of a fixed kernel
# turn within 3%, powers of a whole epoch within 10%. unbound: logit; of compute, seconds that do not follow the clock.
POPULATION = {
    "idle": (-1.7, 0.5),
    "exponent": (0.7, 0.4),
    "floor": (1.2, 0.5),
    "held": (-0.06, 0.05),
    "clock_sharpness": (3.4, 0.3),
    "limit_sharpness": (2.8, 0.4),
    "unbound": (-2.2, 0.8),
}
DEVICE_SD = (0.5, 0.35, 0.4, 0.06, 0.3, 0.4, 0.6)  # in the order of DEVICE_SITES
SHIFT_SD = 0.5  # of the logit of `unbound` of a series


def device_values(site: Mapping[str, Any]) -> dict[str, Array]:
    """Parameters [device] of `series.log_ratios`, from the population's centres and `deviation` [device, parameter]."""
    deviation = jnp.asarray(site["deviation"])
    free = {
        name: jnp.asarray(site[name]) + sd * deviation[..., place]
        for place, (name, sd) in enumerate(zip(DEVICE_SITES, DEVICE_SD, strict=True))
    }
    return {
        "idle": jax.nn.sigmoid(free["idle"]),
        "exponent": 1.0 + jnp.exp(free["exponent"]),
        "floor": jax.nn.sigmoid(free["floor"]),
        "held": jnp.exp(free["held"]),
        "clock_sharpness": jnp.exp(free["clock_sharpness"]),
        "limit_sharpness": jnp.exp(free["limit_sharpness"]),
        "unbound": jax.nn.sigmoid(free["unbound"]),
    }
