"""How long systems run between failures, how long repairs take, and how many nodes go at once, by system with a hierarchy.

Times of a system are Weibull or log-normal with a median and a spread of its own; all three are summed out over grids of its
likelihood, so that what is sampled is the population alone. The exponential law and independent nodes are fitted beside it: they
are what a score is held against.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.horizon.reliability import Reliability

from ...model import Draws, Model, Score
from . import predict
from .data import CENTRE, COLUMNS, QUANTITIES, SPREAD_CENTRE, RepairsData, from_frame
from .events import ALIKE, EXPONENT
from .population import log_probabilities

N = len(QUANTITIES)
LOCATION_SD = 2.0  # of populations, around a node-year and an hour: e^2 = 7 either way
BETWEEN = (np.log(0.8), 0.6)  # standard deviation of log medians between systems: 0.25 to 2.7
SPREAD_SD = 0.5  # of the population's log spread
SPREAD_BETWEEN = (np.log(0.25), 0.6)  # standard deviation of log spreads between systems: 0.08 to 0.8
WEIBULL = (1.0, 1.0)  # Beta: share of systems whose times are Weibull
SHARE = (1.0, 4.0)  # Beta: one event in five takes several nodes
CONCENTRATION = (np.log(3.0), 1.0)  # of that share between systems
EXPONENT_SD, EXPONENT_BETWEEN = 1.0, (np.log(0.7), 0.6)
ALIKE_SD, ALIKE_BETWEEN = 1.0, (np.log(0.7), 0.6)


class Repairs(Model[RepairsData]):
    """The model by the name "repairs"."""

    name = "repairs"
    columns = COLUMNS
    reported = ("location", "log_spread", "between_sd", "spread_sd", "share", "exponent")
    no_variability = (
        "a fit of repairs describes what interrupts a job, not how its steps vary. Use it with "
        "`prism-jax job --reliability`."
    )

    def prepare(self, frame: pd.DataFrame) -> RepairsData:
        """Likelihoods of the systems on grids."""
        return from_frame(frame)

    def program(self, data: RepairsData) -> None:
        """Normal populations of log medians and log spreads, shares of laws; Beta of the shares of group losses."""
        site = {
            "location": numpyro.sample("location", dist.Normal(CENTRE, LOCATION_SD)),
            "between_sd": numpyro.sample("between_sd", dist.LogNormal(*BETWEEN).expand([N])),
            "log_spread": numpyro.sample("log_spread", dist.Normal(SPREAD_CENTRE, SPREAD_SD).expand([N])),
            "spread_sd": numpyro.sample("spread_sd", dist.LogNormal(*SPREAD_BETWEEN).expand([N])),
            "weibull": numpyro.sample("weibull", dist.Beta(*WEIBULL).expand([N])),
            "exponential_location": numpyro.sample("exponential_location", dist.Normal(CENTRE, LOCATION_SD)),
            "exponential_sd": numpyro.sample("exponential_sd", dist.LogNormal(*BETWEEN).expand([N])),
            "share": numpyro.sample("share", dist.Beta(*SHARE)),
            "concentration": numpyro.sample("concentration", dist.LogNormal(*CONCENTRATION)),
            "exponent": numpyro.sample("exponent", dist.Normal(EXPONENT, EXPONENT_SD)),
            "exponent_sd": numpyro.sample("exponent_sd", dist.LogNormal(*EXPONENT_BETWEEN)),
            "alike": numpyro.sample("alike", dist.Normal(ALIKE, ALIKE_SD)),
            "alike_sd": numpyro.sample("alike_sd", dist.LogNormal(*ALIKE_BETWEEN)),
        }
        for name, found in log_probabilities(data, site)._asdict().items():
            numpyro.factor(name, found.sum())

    def start(self, data: RepairsData) -> dict[str, Any]:
        """Locations at the median of the systems' own, everything else at the centre of its prior."""
        best = np.take_along_axis(data.theta[0], data.log_weight[0].argmax(axis=-1)[..., None, None], axis=2)[:, :, 0]
        line = np.take_along_axis(data.median, data.median_log_weight.argmax(axis=-1)[..., None], axis=2)[:, :, 0]
        return {
            "location": np.median(best[..., 0], axis=1),
            "between_sd": np.full(N, np.exp(BETWEEN[0])),
            "log_spread": np.median(best[..., 1], axis=1),
            "spread_sd": np.full(N, np.exp(SPREAD_BETWEEN[0])),
            "weibull": np.full(N, 0.5),
            "exponential_location": np.median(line, axis=1),
            "exponential_sd": np.full(N, np.exp(BETWEEN[0])),
            "share": np.asarray(0.2),
            "concentration": np.asarray(3.0),
            "exponent": np.asarray(EXPONENT),
            "exponent_sd": np.asarray(0.7),
            "alike": np.asarray(ALIKE),
            "alike_sd": np.asarray(0.7),
        }

    def describe(self, data: RepairsData, draws: Draws) -> dict[str, Any]:
        """Laws, hours between failures and of repair, nodes lost together: of a new system and of those in the log."""
        return predict.describe(data, draws)

    def reliability(self, data: RepairsData, draws: Draws, group: str | None) -> Reliability:
        """What interrupts a job on the system `group`, or on a new one for None."""
        return predict.reliability(data, draws, group)

    def score(self, data: RepairsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Log densities of systems that were left out, beside the exponential law and independent nodes."""
        return predict.scores(data, draws, left_out, column)
