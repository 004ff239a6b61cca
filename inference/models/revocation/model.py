"""How long spot nodes stay and how long they are gone, by group with a hierarchy over zones, so that an unseen zone is predicted.

Four families of spells are fitted side by side, each with a population of its own: exponential, Weibull, log-normal and a mixture
of two log-normals. Which one predicts a zone that was left out best is chosen from the draws (`predict.py`), for spells of
availability and for the gaps between them. No population has a parameter of another, so that each is fitted by itself, in three
to eight dimensions. Weighted draws around the mode take a third of the time of chains and are as good for many zones (Pareto
shape below .7); for three they are refused.
Parameters of a group are summed out over grids of its likelihood; means move with the number of nodes and with whether nodes
were kept or only probed for, as the two are not the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from jax import Array
from numpyro.handlers import scope

from prism_jax.cloud.availability.fitted import FittedSpells

from ...model import Draws, Model, Part, Score
from . import predict
from .data import RevocationData, from_frame
from .populations import joined, populations
from .spells import COLUMNS


class Revocation(Model[RevocationData]):
    """The model by the name "revocation"."""

    name = "revocation"
    columns = COLUMNS
    reported = ("location", "between_sd", "log_spread", "exponential_location", "class")
    no_variability = (
        "a fit of revocations describes when spot nodes are there, not how steps vary. Use it with "
        "`prism-jax cloud --availability FIT.npz`."
    )

    def prepare(self, frame: pd.DataFrame) -> RevocationData:
        """Likelihoods of the groups on grids."""
        return from_frame(frame)

    def parts(self, data: RevocationData) -> Mapping[str, tuple[Part[Any], Any]]:
        """One population per family and quantity, and that of what losses take."""
        return populations(data)

    def joined(self, found: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Sites of all populations side by side."""
        return joined(found)

    def program(self, data: RevocationData) -> None:
        """All populations at once, each under its own name."""
        for name, (population, seen) in populations(data).items():
            with scope(prefix=name):
                population.program(seen)

    def start(self, data: RevocationData) -> dict[str, Any]:
        """The starts of all populations."""
        return {
            f"{name}/{site}": value
            for name, (population, seen) in populations(data).items()
            for site, value in population.start(seen).items()
        }

    def describe(self, data: RevocationData, draws: Draws) -> dict[str, Any]:
        """The families by how well they predict a zone left out, an unseen zone, and every group of the file."""
        return predict.describe(data, draws)

    def market(self, data: RevocationData, draws: Draws, zone: str | None) -> FittedSpells:
        """Posterior predictive spot capacity of a zone of the fit, or of a zone that was not seen."""
        return predict.market(data, draws, zone)

    def score(self, data: RevocationData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Log densities of the spells of groups that were left out, under every family."""
        return predict.scores(data, draws, left_out, column)
