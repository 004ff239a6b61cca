"""What a model is to the engine, to the files and to the command line: a protocol, and the score of what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import pandas as pd
from jax import Array

from prism_jax.variability.tree import Variability

from .data.columns import Column

Draws = Mapping[str, np.ndarray]
"""Posterior draws by site: [draw, ...], chains one after the other."""


@dataclass(frozen=True)
class Score:
    """How well a fit predicted one group (or one split) that it had not seen; NaN where a figure has no meaning.

    Attributes:
        group: the group's name.
        ks: Kolmogorov-Smirnov distance between predicted and measured distribution.
        ks_empirical: the same for the trivial prediction, the pooled measurements that were not left out.
        coverage_90: share of the group's scored quantities inside their 90 % predictive intervals.
        p95_p50_ape: |predicted / measured - 1| of p95/p50.
        p99_p50_ape: the same of p99/p50.
        extra: figures of this model alone, such as {"mape": 0.11, "mape_baseline": 0.16}; medians over groups are shown.
    """

    group: str
    ks: float = np.nan
    ks_empirical: float = np.nan
    coverage_90: float = np.nan
    p95_p50_ape: float = np.nan
    p99_p50_ape: float = np.nan
    extra: Mapping[str, float] = field(default_factory=dict)


Data = TypeVar("Data")
PartData = TypeVar("PartData", contravariant=True)


class Part(Protocol[PartData]):
    """What the engine samples: a density and where to begin; a model, or a part of one.

    Notes: `PartData` is a frozen dataclass as described in `Model`.
    """

    def program(self, data: PartData) -> None:
        """The NumPyro model. Runs under jit in float64; arrays of `data` are traced, everything else is static."""
        ...

    def start(self, data: PartData) -> dict[str, Any]:
        """Values of the sites at which chains and variational guides begin, from moments of the data."""
        ...


class Model(Part[Data], Protocol[Data]):
    """One hierarchical model.

    `Data` is a frozen dataclass whose fields are NumPy arrays (float64, int64, or text), numbers, or tuples of text: what the
    likelihood needs (sufficient statistics, index arrays) and the names of its levels. It is stored with the fit.

    Attributes:
        name: as in `prism_jax.fit(..., model=name)` and `prism-jax fit NAME`.
        default_method: "nuts", "svi" or "map": what fits this model best where nobody asks for a method.
        holdout_method: the same where it is fitted many times, with groups left out.
        columns: what a file must and may hold.
        reported: sites whose r-hat and effective sample size make the verdict, and which are calibrated in the slow tests.
        holdout: "halves" where a left-out group is one point of the predicted distribution (a GPU of a fleet): every split
            leaves a random half of the groups out and has one score; "folds" where every group is scored by itself.

    Notes:
        Methods that only some models have:
        `judged(data, draws)`: what the verdict looks at instead of `reported`, as draws [chain, draw, ...], where some data leave
        parameters at their prior.
        `complete(data, draws, key)`: draws of sites that the program integrates out.
        `parts(data)`: parts of the posterior that share neither parameters nor data, `Part`s with data of their own by name,
        which are sampled one by one; `joined(draws by part)`: the model's draws [chain, draw, ...] from theirs.
        `replicate(data, draws, key)`: what the data are held against. `curves(data, draws)`: what a picture is drawn of.
        `measured_level(data, draws)`: of step times.
        `reliability(data, draws, group)`: what interrupts a job, of models of failures.
        `measured_cost(data, draws, cluster, dtype, n_draw, key)`: of models that describe a cost: what it is on that hardware.
        Class attributes: `is_cost`, true where `variability` has nothing to say; `target_accept`, the least acceptance for nuts,
        where a posterior has narrow places.
    """

    name: ClassVar[str]
    default_method: ClassVar[str]
    holdout_method: ClassVar[str]
    columns: ClassVar[Sequence[Column]]
    reported: ClassVar[tuple[str, ...]]
    holdout: ClassVar[str]

    def prepare(self, frame: pd.DataFrame) -> Data:
        """The data of a checked table (canonical column names, SI units, no invalid rows)."""
        ...

    def describe(self, data: Data, draws: Draws) -> dict[str, Any]:
        """What the fit says, for people and for JSON: variance shares, parameters with intervals, notes."""
        ...

    def variability(self, data: Data, draw: Mapping[str, np.ndarray]) -> Variability:
        """The tree that one posterior draw (or the posterior mean) amounts to.

        Raises:
            FitError: the model describes a cost, not a variability.
        """
        ...

    def score(self, data: Data, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
        """Scores of the groups of `column` in `left_out`, which are not in `data`."""
        ...
