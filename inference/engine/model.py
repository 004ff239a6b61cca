"""Model of a fit, as the engine, files and the command line see it: its base class, and the score of left-out data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import jax
import numpy as np
import pandas as pd
from jax import Array

from prism_jax.calibration.key import MeasuredLevel, NoLevel
from prism_jax.core.errors import FitError
from prism_jax.cost.efficiency import MeasuredTables
from prism_jax.fits.report import Verdict
from prism_jax.horizon.reliability import Reliability
from prism_jax.system.hardware import Cluster
from prism_jax.variability.tree import Variability

from ..data.columns import ModelColumn
from .diagnostics import Checks
from .program import WHOLE, ModelPart


def random_key(seed: int, index: int) -> jax.Array:
    """The key of number `index` under a seed."""
    return jax.random.fold_in(jax.random.key(seed), index)


def interval(draws: np.ndarray) -> dict[str, float]:
    """Median and 90% interval of draws [draw]."""
    low, middle, high = np.quantile(np.asarray(draws, dtype=float), [0.05, 0.5, 0.95])
    return {"median": float(middle), "p5": float(low), "p95": float(high)}


Draws = Mapping[str, np.ndarray]
"""Posterior draws by site: [draw, ...], chains one after the other."""


@dataclass(frozen=True)
class GroupScore:
    """Score of a fit on one group (or one split) that it had not seen; NaN where a figure has no meaning.

    Attributes:
        group: the group's name.
        ks: Kolmogorov-Smirnov distance between predicted and measured distribution.
        ks_empirical: the same for the trivial prediction, the pooled measurements that were not left out.
        coverage_90: share of the group's scored quantities inside their 90% predictive intervals.
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


@dataclass(frozen=True)
class Model(ABC, Generic[Data]):
    """One hierarchical model: what it must say, and what a model says that has nothing to say of a thing.

    `Data` is a frozen dataclass whose fields are NumPy arrays (float64, int64, or text), numbers, or tuples of text: what the
    likelihood needs (sufficient statistics, index arrays) and the names of its levels. It is stored with the fit.

    Attributes:
        name: as in `prism_jax.fit(..., model=name)` and `prism-jax fit NAME`.
        default_method: "nuts", "svi", "map" or "least_squares": what fits this model best where nobody asks for a method.
        holdout_method: the same where it is fitted many times, with groups left out.
        columns: what a file must and may hold.
        reported: sites whose r-hat and effective sample size make the verdict, and which are calibrated in the slow tests.
        holdout: "halves" where a left-out group is one point of the predicted distribution (a GPU of a fleet): every split
            leaves a random half of the groups out and has one score; "folds" where every group is scored by itself.
        no_variability: what a model of something else describes, in the words of the error; empty where steps vary by it.
        target_accept: the least acceptance for nuts, where a posterior has narrow places.
    """

    name: ClassVar[str]
    columns: ClassVar[Sequence[ModelColumn]]
    reported: ClassVar[tuple[str, ...]]
    default_method: ClassVar[str] = "nuts"
    holdout_method: ClassVar[str] = "map"
    holdout: ClassVar[str] = "folds"
    no_variability: ClassVar[str] = ""
    target_accept: ClassVar[float] = 0.0

    @abstractmethod
    def prepare(self, frame: pd.DataFrame) -> Data:
        """The data of a checked table (canonical column names, SI units, no invalid rows)."""

    @abstractmethod
    def program(self, data: Data) -> None:
        """The NumPyro model; see `ModelPart`."""

    @abstractmethod
    def start(self, data: Data) -> dict[str, Any]:
        """Values of the sites at which chains begin; see `ModelPart`."""

    @abstractmethod
    def describe(self, data: Data, draws: Draws) -> dict[str, Any]:
        """Describes the fit, for people and for JSON: variance shares, parameters with intervals, notes."""

    @abstractmethod
    def score(self, data: Data, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[GroupScore]:
        """Scores of the groups of `column` in `left_out`, which are not in `data`."""

    def has(self, method: str) -> bool:
        """Whether this model has something to say by that method, of those below."""
        return getattr(type(self), method) is not getattr(Model, method)

    def variability(self, data: Data, draw: Mapping[str, np.ndarray]) -> Variability:
        """The tree that one posterior draw (or the posterior mean) amounts to.

        Raises:
            FitError: the model describes something else.
        """
        raise FitError(self.no_variability)

    def method_for(self, data: Data) -> str:
        """Method that fits these data best where nobody asks for one."""
        return self.default_method

    def least_squares(self, data: Data, n_draw: int, key: Array) -> tuple[Draws, Verdict]:
        """Draws [draw, ...] around an estimate by least squares, without those of `complete`, and whether to trust them.

        Raises:
            FitError: the model has none.
        """
        raise FitError(f"a model of {self.name} has no least squares. Use nuts, svi or map.")

    def parts(self, data: Data) -> Mapping[str, tuple[ModelPart[Any], Any]]:
        """Parts of the posterior by name that share neither parameters nor data, with data of their own: sampled one by one."""
        return {WHOLE: (self, data)}

    def joined(self, found: Mapping[str, Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
        """Draws of the model [chain, draw, ...] from those of its parts."""
        return found[WHOLE]

    def complete(self, data: Data, draws: Draws, key: Array) -> Draws:
        """Draws of sites that the program integrates out."""
        return {}

    def judged(self, data: Data, draws: Draws) -> Draws:
        """Draws that the verdict is about [chain, draw, ...]: reported sites, where data do not leave some at their prior."""
        return {name: draws[name] for name in self.reported if name in draws}

    def replicate(self, data: Data, draws: Draws, key: Array) -> Checks | None:
        """Measured values against replicated ones."""
        return None

    def curves(self, data: Data, draws: Draws) -> Sequence[Any]:
        """Curves that a picture is drawn of."""
        return ()

    def log_likelihood(self, data: Data, draws: Draws) -> tuple[np.ndarray, str] | None:
        """Log likelihood by draw and group, and what a group is."""
        return None

    def measured_level(self, data: Data, draws: Draws) -> MeasuredLevel | NoLevel | None:
        """Measured level of the job's steps."""
        return None

    def measured_cost(
        self, data: Data, draws: Draws, cluster: Cluster, dtype: str, n_draw: int, key: Array
    ) -> MeasuredTables | None:
        """Measured costs of jobs on that hardware."""
        return None

    def reliability(self, data: Data, draws: Draws, group: str | None) -> Reliability:
        """Failures that interrupt a job."""
        raise FitError(f"a fit of {self.name} has no failure rates. Use one of failures or repairs.")

    def law(self, data: Data, draws: Draws, *what: str) -> Any:
        """The law that the fit amounts to; see `prism_jax.cloud.laws`."""
        raise FitError(f"a fit of {self.name} has no law to hand out. Use ladder, saves or startup.")

    def market(self, data: Data, draws: Draws, zone: str | None) -> Any:
        """Posterior predictive spot capacity."""
        raise FitError(f"a fit of {self.name} has no spot capacity. Use one of revocation.")
