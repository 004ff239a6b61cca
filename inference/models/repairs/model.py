"""How long systems run between failures, how long repairs take, and how many nodes go at once, by system with a hierarchy.

Times are Weibull or log-normal (whichever the data prefer) with a scale and a shape of every system, which are summed out over
grids of its likelihood: what is sampled is the population alone. The exponential law and independent nodes are fitted beside it:
they are what a score is held against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.errors import FitError
from prism_jax.horizon.reliability import Reliability
from prism_jax.variability.tree import Variability

from ...data.columns import Column
from ...model import Draws, Score
from . import hazards as hazards, hierarchy as hierarchy, report as report, score as score
from .data import CENTRE, COLUMNS, QUANTITIES, SHAPE_CENTRE, RepairsData, from_frame
from .sizes import CENTRE as EXPONENT

N = len(QUANTITIES)
LOCATION_SD = 2.0  # of populations, around a node-year and an hour: e^2 = 7 either way
BETWEEN = (np.log(0.8), 0.6)  # spread of log scales between systems: 0.25 to 2.7
SHAPE_SD = 0.5  # of the population's log shape
SHAPE_BETWEEN = (np.log(0.25), 0.6)  # spread of log shapes: 0.08 to 0.8
SHARE = (1.0, 4.0)  # Beta: one event in five takes several nodes
CONCENTRATION = (np.log(3.0), 1.0)
EXPONENT_SD, EXPONENT_BETWEEN = 1.0, (np.log(0.7), 0.6)


@dataclass(frozen=True)
class Repairs:
    """The model by the name "repairs"."""

    name: ClassVar[str] = "repairs"
    default_method: ClassVar[str] = "nuts"
    holdout_method: ClassVar[str] = "map"
    columns: ClassVar[Sequence[Column]] = COLUMNS
    reported: ClassVar[tuple[str, ...]] = ("location", "log_shape", "between_sd", "shape_sd", "share", "exponent")
    holdout: ClassVar[str] = "folds"
    is_cost: ClassVar[bool] = True

    def prepare(self, frame: pd.DataFrame) -> RepairsData:
        """Likelihoods of the systems on grids, and the laws that the data prefer."""
        return from_frame(frame)

    def program(self, data: RepairsData) -> None:
        """Normal populations of log scales and log shapes; Beta of the shares of group losses."""
        location = jnp.asarray(numpyro.sample("location", dist.Normal(CENTRE, LOCATION_SD)))
        between = jnp.asarray(numpyro.sample("between_sd", dist.LogNormal(*BETWEEN).expand([N])))
        shape = jnp.asarray(numpyro.sample("log_shape", dist.Normal(SHAPE_CENTRE, SHAPE_SD).expand([N])))
        shape_sd = jnp.asarray(numpyro.sample("shape_sd", dist.LogNormal(*SHAPE_BETWEEN).expand([N])))
        mean, sd = jnp.stack([location, shape], axis=-1), jnp.stack([between, shape_sd], axis=-1)
        numpyro.factor("times", hierarchy.of_pairs(jnp.asarray(data.theta), jnp.asarray(data.log_weight), mean, sd).sum())
        self._exponential(data)
        self._sizes(data)

    def _exponential(self, data: RepairsData) -> None:
        """The trivial law, which shares nothing with the others."""
        location = jnp.asarray(numpyro.sample("exponential_location", dist.Normal(CENTRE, LOCATION_SD)))
        between = jnp.asarray(numpyro.sample("exponential_sd", dist.LogNormal(*BETWEEN).expand([N])))
        grid, weight = jnp.asarray(data.scale), jnp.asarray(data.scale_log_weight)
        numpyro.factor("exponential", hierarchy.of_line(grid, weight, location, between).sum())

    def _sizes(self, data: RepairsData) -> None:
        share = jnp.asarray(numpyro.sample("share", dist.Beta(*SHARE)))
        concentration = jnp.asarray(numpyro.sample("concentration", dist.LogNormal(*CONCENTRATION)))
        exponent = jnp.asarray(numpyro.sample("exponent", dist.Normal(EXPONENT, EXPONENT_SD)))
        spread = jnp.asarray(numpyro.sample("exponent_sd", dist.LogNormal(*EXPONENT_BETWEEN)))
        several = jnp.asarray(data.n_node) > 1.0
        shares = hierarchy.of_shares(jnp.asarray(data.n_multi), jnp.asarray(data.n_event), share, concentration)
        grid, weight = jnp.asarray(data.exponent), jnp.asarray(data.exponent_log_weight)
        sizes = hierarchy.of_line(grid, weight, exponent, spread)
        numpyro.factor("sizes", jnp.where(several, shares + sizes, 0.0).sum())

    def start(self, data: RepairsData) -> dict[str, Any]:
        """Locations at the median of the systems' own, everything else at the centre of its prior."""
        best = np.take_along_axis(data.theta, data.log_weight.argmax(axis=-1)[..., None, None], axis=2)[:, :, 0]
        line = np.take_along_axis(data.scale, data.scale_log_weight.argmax(axis=-1)[..., None], axis=2)[:, :, 0]
        return {
            "location": np.median(best[..., 0], axis=1),
            "between_sd": np.full(N, np.exp(BETWEEN[0])),
            "log_shape": np.median(best[..., 1], axis=1),
            "shape_sd": np.full(N, np.exp(SHAPE_BETWEEN[0])),
            "exponential_location": np.median(line, axis=1),
            "exponential_sd": np.full(N, np.exp(BETWEEN[0])),
            "share": np.asarray(0.2),
            "concentration": np.asarray(3.0),
            "exponent": np.asarray(EXPONENT),
            "exponent_sd": np.asarray(0.7),
        }

    def describe(self, data: RepairsData, draws: Draws) -> dict[str, Any]:
        """Laws, hours between failures and of repair, nodes lost together: of a new system and of those in the log."""
        return report.describe(data, draws)

    def variability(self, data: RepairsData, draw: Mapping[str, np.ndarray]) -> Variability:
        """Raises: failures do not vary a step."""
        raise FitError(
            "a fit of repairs describes what interrupts a job, not how its steps vary. Use it with `prism-jax job --reliability`."
        )

    def reliability(self, data: RepairsData, draws: Draws, group: str | None) -> Reliability:
        """What interrupts a job on the system `group`, or on a new one for None."""
        return hazards.reliability(data, draws, group)

    def score(self, data: RepairsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Log densities of systems that were left out, beside the exponential law and independent nodes."""
        return score.scores(data, draws, left_out, column)
