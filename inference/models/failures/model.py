"""How often GPUs, nodes and jobs fail, from counts of several clusters: a gamma-Poisson hierarchy.

Clusters differ by factors (a gamma law, integrated out: counts are negative binomial), so that a few thousand failures in one
cluster say little about the next one: the interval of a new cluster is that of clusters, not of counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from jax.scipy.special import gammaln

from prism_jax.errors import FitError
from prism_jax.horizon.reliability import Reliability
from prism_jax.variability.tree import Variability

from ...data.columns import Column
from ...model import Draws, Score
from . import hazards, report as report, score as score
from .data import COLUMNS, FailuresData, from_frame

# Events per hour. Published GPU clusters lie at 15,000 to 180,000 GPU-hours: e^1.2 = 3.3 either way of 50,000.
# Nodes (host, network, power): 3,700 to 15,000 node-hours in published clusters, some of it their GPUs'. Jobs: one in 10 hours
# (software of 1,024 GPU jobs) to one in some months.
LOG_RATE = np.log([1.0 / 50_000.0, 1.0 / 20_000.0, 1.0 / 200.0])
LOG_RATE_SD = np.array([1.2, 1.5, 1.7])
# Shape of the gamma law between clusters: coefficient of variation 0.7 at 2; 0.3 to 1.7 within two standard deviations.
LOG_SHAPE = (np.log(2.0), 0.9)


@dataclass(frozen=True)
class Failures:
    """The model by the name "failures"."""

    name: ClassVar[str] = "failures"
    default_method: ClassVar[str] = "nuts"
    holdout_method: ClassVar[str] = "map"
    columns: ClassVar[Sequence[Column]] = COLUMNS
    reported: ClassVar[tuple[str, ...]] = ("log_rate", "shape")
    holdout: ClassVar[str] = "folds"
    is_cost: ClassVar[bool] = True

    def prepare(self, frame: pd.DataFrame) -> FailuresData:
        """Counts and exposures."""
        return from_frame(frame)

    def program(self, data: FailuresData) -> None:
        """Log-normal rates, a gamma law of clusters that is integrated out, Poisson counts."""
        log_rate = jnp.asarray(numpyro.sample("log_rate", dist.Normal(LOG_RATE, LOG_RATE_SD)))
        shape = jnp.asarray(numpyro.sample("shape", dist.LogNormal(*LOG_SHAPE)))
        exposure, count, group = jnp.asarray(data.exposure_h), jnp.asarray(data.count), jnp.asarray(data.group)
        mean = exposure @ (jnp.exp(log_rate) * jnp.asarray(data.levels))
        seen = count > 0.0
        numpyro.factor("rows", jnp.where(seen, count * jnp.log(jnp.where(seen, mean, 1.0)), 0.0).sum())
        total = jax.ops.segment_sum(count, group, data.n_group)
        expected = jax.ops.segment_sum(mean, group, data.n_group)
        groups = gammaln(shape + total) - gammaln(shape) + shape * jnp.log(shape)
        numpyro.factor("clusters", (groups - (shape + total) * jnp.log(shape + expected)).sum())

    def start(self, data: FailuresData) -> dict[str, Any]:
        """The centre of the priors, the GPUs' rate from all counts."""
        gpu_h = data.exposure_h[:, 0].sum()
        rate = LOG_RATE.copy()
        if gpu_h > 0.0:
            rate[0] = np.log((data.count.sum() + 1.0) / (2.0 * gpu_h + 1.0))
        return {"log_rate": rate, "shape": np.asarray(2.0)}

    def describe(self, data: FailuresData, draws: Draws) -> dict[str, Any]:
        """MTBF by level, of a new cluster and of those in the table, and the spread between clusters."""
        return report.describe(data, draws)

    def variability(self, data: FailuresData, draw: Mapping[str, np.ndarray]) -> Variability:
        """Raises: failures do not vary a step."""
        raise FitError(
            "a fit of failures describes what interrupts a job, not how its steps vary. Use it with "
            "`prism-jax job --reliability`."
        )

    def reliability(self, data: FailuresData, draws: Draws, group: str | None) -> Reliability:
        """What interrupts a job on the cluster `group`, or on a new cluster for None."""
        return hazards.reliability(data, draws, group)

    def score(self, data: FailuresData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Counts of clusters that were left out."""
        return score.scores(data, draws, left_out, column, key)
