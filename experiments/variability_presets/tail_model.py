"""Model of the ratio between tails of measured steps and those of a preset of variability, over systems.

    ln(measured excess / excess of the preset)[system, level] = kind x (-1/2 or 1/2) + deviation[system, level]

An excess is p95/p50 - 1 or p99/p50 - 1 of the steps of a system. Deviations of the two levels are one Student-t vector: a system
whose p95 is far out has its p99 far out. Their scale may grow with the size of the system. Kinds of site are the vendor's own
machines, tuned and run often for a benchmark (-1/2), and everybody else's (1/2); a preset stands for the middle of them. There is
no level to fit, so that what is predicted is the median of what may be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln

KIND_SD = 1.0  # of the log ratio of both kinds of site
SCALE = (0.0, 0.5)  # of ln of the scale: ratios within a factor e, that factor itself within 1.6
GROWTH_SD = 0.1
ALIKE = (4.0, 1.0)  # Beta: correlation of both levels
TAIL = 3.0  # degrees of freedom; of 3, 4, 5 and 8, chosen in sight of the coverage that the experiment prints
REFERENCE_LOG2_GPUS = 9.0


@dataclass(frozen=True)
class TailsData:
    """Systems.

    Attributes:
        own: -1/2 where the machine is the vendor's own, else 1/2, [system].
        log2_gpus: above `REFERENCE_LOG2_GPUS`, [system].
        log_ratio: ln of measured over the preset's excess, of p95 and p99, [system, 2].
        counts: 1, and 0 of a system that is left out, [system].
    """

    own: Annotated[np.ndarray, "system"]
    log2_gpus: Annotated[np.ndarray, "system"]
    log_ratio: Annotated[np.ndarray, "system level"]
    counts: Annotated[np.ndarray, "system"]


class Tails:
    """The model; a `ModelPart` of the engine."""

    reported = ("kind", "scale", "growth", "alike")
    NEW_KIND = 0.7071  # sd of the kind of a site that is neither, over `kind`: that of two values 1 apart

    def program(self, data: TailsData) -> None:
        """The NumPyro model of log ratios."""
        kind = numpyro.sample("kind", dist.Normal(0.0, KIND_SD))
        scale = numpyro.sample("scale", dist.LogNormal(SCALE[0], SCALE[1]).expand([2]).to_event(1))
        growth = numpyro.sample("growth", dist.Normal(0.0, GROWTH_SD))
        alike = numpyro.sample("alike", dist.Beta(*ALIKE))
        wide = jnp.exp(jnp.asarray(growth) * jnp.asarray(data.log2_gpus))[:, None] * jnp.asarray(scale)
        z = (jnp.asarray(data.log_ratio) - jnp.asarray(kind) * jnp.asarray(data.own)[:, None]) / wide
        left = 1.0 - jnp.square(alike)
        square = (z[:, 0] ** 2 - 2.0 * alike * z[:, 0] * z[:, 1] + z[:, 1] ** 2) / left
        constant = gammaln(0.5 * TAIL + 1.0) - gammaln(0.5 * TAIL) - jnp.log(TAIL * jnp.pi)
        density = (
            constant - 0.5 * jnp.log(left) - jnp.log(wide).sum(axis=1) - (0.5 * TAIL + 1.0) * jnp.log1p(square / TAIL)
        )
        numpyro.factor("systems", (jnp.asarray(data.counts) * density).sum())

    def start(self, data: TailsData) -> dict[str, Any]:
        """The centres of the priors."""
        return {"kind": 0.0, "scale": np.ones(2), "growth": 0.0, "alike": 0.8}
