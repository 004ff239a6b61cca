"""The law of a series: log ratios of seconds and watts to its top row, from the parameters of its device.

Clocks: the clock that is asked for is held only up to `held` (a limit binds before); seconds and watts follow `PowerLaw`.

Limits: of the time at the top, a share `(top's dynamic power / most) ^ duty` computes and the rest waits at idle power. Computing
draws less than the limit on average, because power fluctuates: a smooth minimum of what it wants and of the limit. The clock
follows from the law; computing stretches by the share of its seconds that the clock bounds; waiting does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from experiments.power_fit.data import PowerData
from prism_jax.system.power import PowerLaw

LOWEST_CLOCK = 0.05
LEAST = 1e-9
MOST_WANTED = 3.0  # power that work would draw without a limit, of TDP
EDGE, ROUND = 0.02, 12.0  # how sharply shares stop at 0, of TDP, and at 1: derivatives have no jumps


def log_ratios(data: PowerData, site: Mapping[str, Any]) -> tuple[Array, Array]:
    """Log of seconds and watts over those of the top, [row].

    Args:
        data: the series; measured ratios are not looked at.
        site: per device `idle`, `exponent`, `floor`, `held`, `clock_sharpness`, `limit_sharpness`, `unbound`; `duty`, `reach`;
            per kind of series `shift` of the logit of `unbound`.
    """
    of, device = jnp.asarray(data.of), jnp.asarray(data.device)
    by_row = {name: jnp.asarray(site[name])[device][of] for name in DEVICE_SITES}
    law = PowerLaw(by_row["idle"], by_row["exponent"], by_row["floor"], busy={}, bound={}, lowest_clock=LOWEST_CLOCK)
    bound = 1.0 - jax.nn.sigmoid(_logit(by_row["unbound"]) + jnp.asarray(site["shift"])[jnp.asarray(data.kind)[of]])
    clocks = _of_clocks(data, law, by_row, bound)
    limits = _of_limits(data, law, by_row, bound, site)
    is_limit = jnp.asarray(data.is_limit)[of]
    log_time, log_power = (jnp.where(is_limit, b, a) for a, b in zip(clocks, limits, strict=True))
    return log_time, log_power


DEVICE_SITES = ("idle", "exponent", "floor", "held", "clock_sharpness", "limit_sharpness", "unbound")


def _of_clocks(data: PowerData, law: PowerLaw, site: Mapping[str, Array], bound: Array) -> tuple[Array, Array]:
    held, m = site["held"], site["clock_sharpness"]
    clock = smooth_minimum(jnp.asarray(data.control), held, m) / held
    top = smooth_minimum(jnp.ones_like(held), held, m) / held
    power = jnp.log(law.share(clock, 1.0)) - jnp.log(law.share(top, 1.0))
    return jnp.log(1.0 - bound + bound / clock) - jnp.log(1.0 - bound + bound / top), power


def _of_limits(
    data: PowerData, law: PowerLaw, by_row: Mapping[str, Array], bound: Array, site: Mapping[str, Any]
) -> tuple[Array, Array]:
    of = jnp.asarray(data.of)
    idle, m = by_row["idle"], by_row["limit_sharpness"]
    limit, top_limit = jnp.asarray(data.control), jnp.asarray(data.top)[of]
    dynamic = EDGE * jax.nn.softplus((jnp.asarray(data.top_power)[of] - idle) / EDGE)
    most = EDGE * jax.nn.softplus((site["reach"] * top_limit - idle) / EDGE)
    computes = smooth_minimum(dynamic / most, 1.0, ROUND) ** site["duty"]
    at_top = smooth_minimum(idle + dynamic / computes, top_limit, 4.0 * ROUND)
    wanted = _without_limit(at_top, top_limit, m)
    drawn = smooth_minimum(wanted, limit, m)
    busy = (wanted - idle) / (1.0 - idle)
    stretch = law.clock_under(at_top, busy) / law.clock_under(drawn, busy)
    computing = computes * (1.0 - bound + bound * stretch)
    time = 1.0 - computes + computing
    power = idle + (drawn - idle) * computing / time
    return jnp.log(time), jnp.log(power) - jnp.log(idle + (at_top - idle) * computes)


def smooth_minimum(a: Any, b: Any, m: Any) -> Array:
    """(a^-m + b^-m)^(-1/m)."""
    return jnp.exp(-jnp.logaddexp(-m * jnp.log(a), -m * jnp.log(b)) / m)


def _without_limit(drawn: Array, limit: Array, m: Array) -> Array:
    """What makes a smooth minimum with `limit` be `drawn`."""
    below = jnp.maximum(m * jnp.log(limit / drawn), LEAST)
    log_free = jnp.log(limit) - (below + jnp.log(-jnp.expm1(-below))) / m
    return smooth_minimum(jnp.exp(log_free), MOST_WANTED, ROUND)


def _logit(share: Array) -> Array:
    return jnp.log(share) - jnp.log1p(-share)
