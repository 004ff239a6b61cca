"""The program of a sum of terms: log seconds of cells with Student's errors, repeats around them.

    ln t = ln sum_i c_i x_i + sum_levels e_group + error,    c_i > 0

x_i are the seconds that a term is expected to take, so that all c_i are near 1. A cell's own error has heavy tails, since a thing
may be unlike all others, and groups of one level may be more or less alike inside; repeats of a cell are normal around it. Their
spreads are stated, not inferred: a table has two GPUs or two families, which do not tell a spread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ...engine.priors import Scale
from .data import SumsData

MISFIT = Scale(0.05, 2.0)  # of cells: things that agree in all totals differ by 1 to 20 %
NOISE = Scale(0.02, 3.0)  # of repeats: 0.2 to 20 %
UNEVEN_SD = 0.7  # of the log of a group's own misfit around that of all: half to twice
TAIL = 4.0  # degrees of freedom of the errors of cells
REPORTED = ("log_factor", "misfit", "noise")


def sums_program(data: SumsData) -> None:
    """Factors of terms, effects of groups (non-centred), errors."""
    factor = jnp.log(jnp.asarray(data.factor))
    log_factor = jnp.asarray(numpyro.sample("log_factor", dist.Normal(0.0, factor).to_event(1)))
    mean = jnp.log(jnp.asarray(data.size) @ jnp.exp(log_factor))
    member = jnp.asarray(data.member)
    if data.effects:
        deviation = jnp.asarray(numpyro.sample("deviation", dist.Normal().expand([len(data.effects)]).to_event(1)))
        mean = mean + member @ (jnp.asarray(data.spread)[jnp.asarray(data.level)] * deviation)
    misfit = jnp.asarray(numpyro.sample("misfit", MISFIT.law()))
    noise = jnp.asarray(numpyro.sample("noise", NOISE.law()))
    if data.uneven >= 0:
        own = jnp.asarray(numpyro.sample("unevenness", dist.Normal().expand([len(data.effects)]).to_event(1)))
        misfit = misfit * jnp.exp(member @ (UNEVEN_SD * own * (jnp.asarray(data.level) == data.uneven)))
    scale = jnp.sqrt(misfit**2 + noise**2 / jnp.asarray(data.n))
    numpyro.factor("cells", dist.StudentT(TAIL, mean, scale).log_prob(jnp.asarray(data.log_s)).sum())
    numpyro.factor("repeats", -data.n_within * jnp.log(noise) - 0.5 * data.within / noise**2)


def sums_start(data: SumsData) -> dict[str, Any]:
    """The centres of the priors."""
    start: dict[str, Any] = {
        "log_factor": np.zeros(len(data.terms)),
        "misfit": np.asarray(MISFIT.median),
        "noise": np.asarray(NOISE.median),
    }
    if data.effects:
        start["deviation"] = np.zeros(len(data.effects))
    if data.uneven >= 0:
        start["unevenness"] = np.zeros(len(data.effects))
    return start


def effects_of(data: SumsData, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log effect of every group met, [draw, effect]."""
    if not data.effects:
        return np.zeros((len(draws["misfit"]), 0))
    return data.spread[data.level] * np.asarray(draws["deviation"])


def misfits_of(data: SumsData, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log of the own misfit of every group over that of all, [draw, effect]; 0 of groups of other levels."""
    if data.uneven < 0:
        return np.zeros((len(draws["misfit"]), len(data.effects)))
    return UNEVEN_SD * np.asarray(draws["unevenness"]) * (data.level == data.uneven)
