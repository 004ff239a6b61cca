"""What a model by a sum of terms says and does, whatever its table: `totals` and `saves` name their columns and terms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jax import Array

from prism_jax.errors import FitError
from prism_jax.variability.tree import Variability

from ...data.columns import Column
from ...model import Draws, Score
from ...summary import interval
from .data import SumsData, groups_of
from .predict import group_scores, log_seconds
from .program import REPORTED, effects_of, sums_program, sums_start


class AbstractSums:
    """A model by a sum of terms.

    Attributes:
        seconds: column that was measured.
        levels: column -> standard deviation of the effects of its groups, in log seconds.
    """

    name: ClassVar[str]
    seconds: ClassVar[str]
    levels: ClassVar[Mapping[str, float]]
    columns: ClassVar[Sequence[Column]]
    default_method: ClassVar[str] = "nuts"
    holdout_method: ClassVar[str] = "map"
    reported: ClassVar[tuple[str, ...]] = REPORTED
    holdout: ClassVar[str] = "folds"
    is_cost: ClassVar[bool] = True

    @abstractmethod
    def prepare(self, frame: pd.DataFrame) -> SumsData:
        """Cells of a checked table."""

    @abstractmethod
    def sizes(self, frame: pd.DataFrame) -> np.ndarray:
        """Seconds of every term as expected before any measurement, [row, term]."""

    @abstractmethod
    def trivial(self, data: SumsData, frame: pd.DataFrame) -> np.ndarray:
        """Seconds [row] by the plainest rule, which scores print beside."""

    def program(self, data: SumsData) -> None:
        """The shared program."""
        sums_program(data)

    def start(self, data: SumsData) -> dict[str, Any]:
        """The centres of the priors."""
        return sums_start(data)

    def describe(self, data: SumsData, draws: Draws) -> dict[str, Any]:
        """Factors on what was expected of the terms, effects of groups, errors."""
        factor, effect = np.exp(np.asarray(draws["log_factor"])), np.exp(effects_of(data, draws))
        return {
            "n_things": len(data.log_s),
            "n_rows": int(data.n.sum()),
            "times_expected": {name: interval(factor[:, place]) for place, name in enumerate(data.terms)},
            "groups": {name: interval(effect[:, place]) for place, name in enumerate(data.effects)},
            "misfit": interval(draws["misfit"]),
            "noise": interval(draws["noise"]),
            "notes": list(data.notes),
        }

    def variability(self, data: SumsData, draw: Mapping[str, np.ndarray]) -> Variability:
        """Raises: it is a cost."""
        raise FitError(f"a fit of {self.name} describes seconds, not how steps vary.")

    def predict(
        self, data: SumsData, draws: Draws, frame: pd.DataFrame, rng: np.random.Generator, *, with_noise: bool = True
    ) -> np.ndarray:
        """Log seconds of the rows of a checked table, [draw, row]."""
        groups = [groups_of(frame, name) for name in self.levels]
        return log_seconds(data, draws, self.sizes(frame), groups, rng, with_noise=with_noise)

    def score(self, data: SumsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Mean relative errors of groups that were left out, beside the trivial ones."""
        return group_scores(
            left_out,
            column,
            self.seconds,
            lambda rows, rng: self.predict(data, draws, rows, rng),
            lambda rows: self.trivial(data, rows),
            key,
        )


def column_of(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column of numbers, 0 where there is none."""
    if name not in frame:
        return np.zeros(len(frame))
    return np.nan_to_num(frame[name].to_numpy(dtype=float), nan=0.0)
