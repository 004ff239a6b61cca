"""How long spot nodes stay and how long they are gone, by group with a hierarchy over zones, so that an unseen zone is predicted.

Four families of spells are fitted side by side, each with a population of its own: exponential, Weibull, log-normal and a mixture
of two log-normals. Which one predicts a zone that was left out best is chosen from the draws (`choice.py`), for spells of
availability and for the gaps between them. Parameters of a group are summed out over grids of its likelihood; means move with the
number of nodes and with whether nodes were kept or only probed for, as the two are not the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.cloud.availability.fitted import FittedSpells
from prism_jax.errors import FitError
from prism_jax.variability.tree import Variability

from ...data.columns import Column
from ...model import Draws, Score
from . import hierarchy as hierarchy, markets as markets, report as report, score as score
from .data import CENTRE, CLASSES, QUANTITIES, SPREAD_CENTRE, TRAITS, RevocationData, from_frame
from .laws import SHAPES_OF
from .table import COLUMNS

N, N_FAMILY, N_TRAIT = len(QUANTITIES), len(SHAPES_OF), len(TRAITS)
LOCATION_SD = 2.0  # of populations, around an hour and a half
# Of log medians per e-fold of nodes, and between probes and nodes that were kept; up, down. Losses of N nodes that are taken one
# by one come N times as often (slope -1), those of nodes taken together as often as of one (0).
SLOPE, SLOPE_SD = np.array([[-0.4, 0.0], [0.0, 0.0]]), np.array([[0.3, 0.5], [0.5, 0.5]])
BETWEEN = (np.log(0.8), 0.6)  # standard deviation of log medians between groups: 0.25 to 2.7
SPREAD_SD = 0.5
SPREAD_BETWEEN = (np.log(0.25), 0.6)
CONCENTRATION = (np.log(5.0), 1.0)  # of shares of losses between groups


@dataclass(frozen=True)
class Revocation:
    """The model by the name "revocation"."""

    name: ClassVar[str] = "revocation"
    default_method: ClassVar[str] = "nuts"
    holdout_method: ClassVar[str] = "map"
    columns: ClassVar[Sequence[Column]] = COLUMNS
    reported: ClassVar[tuple[str, ...]] = ("location", "between_sd", "log_spread", "exponential_location", "class")
    holdout: ClassVar[str] = "folds"
    is_cost: ClassVar[bool] = True

    def prepare(self, frame: pd.DataFrame) -> RevocationData:
        """Likelihoods of the groups on grids."""
        return from_frame(frame)

    def program(self, data: RevocationData) -> None:
        """Normal populations of log medians and log spreads by family and quantity; Dirichlet of what losses take."""
        sites = {
            "location": dist.Normal(CENTRE, LOCATION_SD).expand([N_FAMILY, N]).to_event(2),
            "slope": dist.Normal(SLOPE, SLOPE_SD).expand([N_FAMILY, N, N_TRAIT]).to_event(3),
            "between_sd": dist.LogNormal(*BETWEEN).expand([N_FAMILY, N]).to_event(2),
            "log_spread": dist.Normal(SPREAD_CENTRE, SPREAD_SD).expand([N_FAMILY, N]).to_event(2),
            "spread_sd": dist.LogNormal(*SPREAD_BETWEEN).expand([N_FAMILY, N]).to_event(2),
            "shape_share": dist.Dirichlet(np.ones(len(SHAPES_OF["mixture"]))).expand([N]).to_event(1),
            "exponential_location": dist.Normal(CENTRE, LOCATION_SD).expand([N]).to_event(1),
            "exponential_slope": dist.Normal(SLOPE, SLOPE_SD).to_event(2),
            "exponential_sd": dist.LogNormal(*BETWEEN).expand([N]).to_event(1),
            "class": dist.Dirichlet(np.ones(len(CLASSES))),
            "concentration": dist.LogNormal(*CONCENTRATION),
        }
        site = {name: numpyro.sample(name, law) for name, law in sites.items()}
        for name, found in hierarchy.log_probabilities(data, site)._asdict().items():
            numpyro.factor(name, found.sum())

    def start(self, data: RevocationData) -> dict[str, Any]:
        """Locations at the median of the groups' own, everything else at the centre of its prior."""
        first = [shapes[0] for shapes in SHAPES_OF.values()]
        best = np.take_along_axis(data.theta, data.log_weight.argmax(axis=-1)[..., None, None], axis=3)[first, :, :, 0]
        line = np.take_along_axis(data.median, data.median_log_weight.argmax(axis=-1)[..., None], axis=2)[..., 0]
        return {
            "location": np.median(best[..., 0], axis=2),
            "slope": np.tile(SLOPE, (N_FAMILY, 1, 1)),
            "between_sd": np.full((N_FAMILY, N), np.exp(BETWEEN[0])),
            "log_spread": np.median(best[..., 1], axis=2),
            "spread_sd": np.full((N_FAMILY, N), np.exp(SPREAD_BETWEEN[0])),
            "shape_share": np.full((N, len(SHAPES_OF["mixture"])), 1.0 / len(SHAPES_OF["mixture"])),
            "exponential_location": np.median(line, axis=1),
            "exponential_slope": SLOPE.copy(),
            "exponential_sd": np.full(N, np.exp(BETWEEN[0])),
            "class": np.full(len(CLASSES), 1.0 / len(CLASSES)),
            "concentration": np.asarray(5.0),
        }

    def describe(self, data: RevocationData, draws: Draws) -> dict[str, Any]:
        """The families by how well they predict a zone left out, an unseen zone, and every group of the file."""
        return report.describe(data, draws)

    def variability(self, data: RevocationData, draw: Mapping[str, np.ndarray]) -> Variability:
        """Raises: revocations do not vary a step."""
        raise FitError(
            "a fit of revocations describes when spot nodes are there, not how steps vary. Use it with "
            "`prism-jax cloud --availability FIT.npz`."
        )

    def market(self, data: RevocationData, draws: Draws, zone: str | None) -> FittedSpells:
        """Posterior predictive spot capacity of a zone of the fit, or of a zone that was not seen."""
        return markets.market(data, draws, zone)

    def score(self, data: RevocationData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Log densities of the spells of groups that were left out, under every family."""
        return score.scores(data, draws, left_out, column)
