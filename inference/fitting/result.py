"""A fit: the posterior draws of a model on data, and what may be done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from prism_jax.calibration.key import MeasuredLevel, NoLevel
from prism_jax.cloud.availability import FittedSpells
from prism_jax.core.errors import DataError, FailedFitError, FitError
from prism_jax.core.report import to_plain
from prism_jax.cost.efficiency import MeasuredTables
from prism_jax.fits.report import CleaningReport, Verdict
from prism_jax.horizon.reliability import Reliability
from prism_jax.system.hardware import Cluster
from prism_jax.variability.tree import Variability

from ..engine.diagnostics import Checks
from ..engine.model import Model
from ..engine.program import PosteriorDraws
from . import store


@dataclass(frozen=True)
class Fit:
    """Fit of a model to data, as `prism_jax.fit` returns it.

    Attributes:
        model: the model that was fitted.
        data: its data (see the model's file).
        sampled: draws by site, [chain, draw, ...], and sampler statistics.
        method: "nuts", "svi", "map" or "least_squares".
        verdict: whether to trust the draws.
        hygiene: rows read, kept and dropped, by rule.
        elapsed_s: wall-clock time of the fit.
        record: inputs, seed and versions.
        file: where it was read from, which is untrusted; None where it was not.
    """

    model: Model[Any]
    data: Any
    sampled: PosteriorDraws
    method: str
    verdict: Verdict
    hygiene: CleaningReport
    elapsed_s: float
    record: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Site -> [draw, ...], chains one after the other."""
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in self.sampled.draws.items()}

    def describe(self) -> dict[str, Any]:
        """Describes the fit in plain values: parameters with 90% intervals, variance shares, notes."""
        return self._of_model("describe", self.draws)

    def summary(self) -> dict[str, Any]:
        """Summary that `prism-jax fit --json` prints."""
        about = self.describe()
        return {
            **self.record,
            "kind": "fit",
            "model": self.model.name,
            "method": self.method,
            "verdict": to_plain(self.verdict),
            "variance_of": about.get("variance_of", "log time"),
            "variance_shares": about.get("variance_shares", {}),
            "elapsed_s": self.elapsed_s,
            "hygiene": to_plain(self.hygiene),
            "about": about,
        }

    def check(self) -> Checks | None:
        """Measured values against replicated ones; None where the model offers no replication."""
        return self._of_model("replicate", self.draws, jax.random.key(0))

    def curves(self) -> Sequence[Any]:
        """Fitted curves with the measured points, such as bandwidth by message size; none where the model has none."""
        return self._of_model("curves", self.draws)

    def loo(self) -> dict[str, Any]:
        """Leave-one-out score by PSIS-LOO, through ArviZ.

        Raises:
            FitError: ArviZ is not installed, or the model offers no likelihood by group.
        """
        from ..engine.diagnostics import loo

        with jax.enable_x64(True):
            found = self._of_model("log_likelihood", self.draws)
        if found is None:
            raise FitError(f"the {self.model.name} model has no leave-one-out score; score it by --holdout COLUMN")
        by_group, what = found
        return loo(by_group, self.sampled.diverging.shape[0], what)

    def to_variability(self, *, force: bool = False) -> Variability:
        """The tree at the posterior mean, for `predict`.

        Raises:
            FailedFitError: the verdict is failed and `force` is not set.
            FitError: the model describes a cost.
        """
        self._check(force)
        return self._of_model("variability", {name: value.mean(axis=0) for name, value in self.draws.items()})

    def variability_draws(self, n: int, *, key: jax.Array, force: bool = False) -> list[Variability]:
        """Trees of `n` posterior draws; the spread of what they predict is the epistemic band.

        Raises:
            FitError: as `to_variability`.
        """
        self._check(force)
        draws = self.draws
        n_draw = len(next(iter(draws.values())))
        chosen = np.asarray(jax.random.choice(key, n_draw, (min(n, n_draw),), replace=False))
        return [self._of_model("variability", {name: value[i] for name, value in draws.items()}) for i in chosen]

    @property
    def describes_variability(self) -> bool:
        """Whether `to_variability` has something to say; fits of kernels and overlap describe a cost alone."""
        return not self.model.no_variability

    def measured_cost(
        self, cluster: Cluster, dtype: str, n: int, *, key: jax.Array, force: bool = False
    ) -> MeasuredTables | None:
        """Measured costs of jobs on `cluster` in `dtype`, with `n` draws; None of models without effect on a step's time.

        Raises:
            FailedFitError: the verdict is failed and `force` is not set.
            DataError: it was measured on other hardware.
        """
        return self._checked("measured_cost", force, cluster, dtype, n, key)

    def measured_level(self) -> MeasuredLevel | NoLevel | None:
        """Measured level of the job's steps, where this is a fit to its log; why that cannot be said; None of other models."""
        return self._of_model("measured_level", self.draws)

    def reliability(self, group: str | None = None, *, force: bool = False) -> Reliability:
        """Failures that interrupt a job, from a fit of failures or repairs.

        Args:
            group: a cluster (system) of the fit; None: one that was not measured, with what is not known of it.
            force: use the fit even where its verdict is failed.

        Raises:
            FailedFitError: the verdict is failed and `force` is not set.
            FitError: the model has no failure rates, or the fit has no such group.
        """
        return self._checked("reliability", force, group)

    def law(self, *what: Any, force: bool = False) -> Any:
        """The law that a fit of a ladder, saves or start-up amounts to; see `prism_jax.cloud.laws`.

        Args:
            what: setup (ladder), tier and region (start-up); none where the fit has one alone.
            force: use the fit even where its verdict is failed.

        Raises:
            FailedFitError: the verdict is failed and `force` is not set.
            FitError: the model has no law of its own, or the fit no such setup.
        """
        return self._checked("law", force, *what)

    def spot_market(self, zone: str | None = None, *, force: bool = False) -> FittedSpells:
        """Posterior predictive spot capacity, from a fit of revocations.

        Args:
            zone: a zone of the fit; None: one that was not seen.
            force: use the fit even where its verdict is failed.

        Raises:
            FailedFitError: the verdict is failed and `force` is not set.
            FitError: the model has no spot capacity, or the fit has no such zone.
        """
        return self._checked("market", force, zone)

    def save(self, path: str | Path) -> None:
        """Writes the fit as an archive of arrays (.npz), whole or not at all.

        Raises:
            DataError: the file cannot be written.
            OSError: the disk is full.
        """
        store.save(vars(self), path)

    @staticmethod
    def load(path: str | Path) -> Fit:
        """The fit in a file that `save` wrote.

        Raises:
            DataError: it is no such file.
        """
        return Fit(**store.read(path), file=Path(path))

    def _checked(self, method: str, force: bool, *arguments: Any) -> Any:
        """Calls a method of the model with the draws; a failed verdict is no obstacle to a model that lacks the method.

        Raises:
            FailedFitError: the verdict is failed and `force` is not set.
        """
        if self.model.has(method):
            self._check(force)
        return self._of_model(method, self.draws, *arguments)

    def _of_model(self, method: str, *arguments: Any) -> Any:
        """Calls a method of the model with the data.

        Raises:
            DataError: the fit was read from a file, of which the model can make nothing.
        """
        try:
            return getattr(self.model, method)(self.data, *arguments)
        except (DataError, FitError):
            raise
        except Exception as error:
            if self.file is None:
                raise
            raise store.unusable(self.file, error) from error

    def _check(self, force: bool) -> None:
        if not (self.verdict.ok or force):
            raise FailedFitError(self.verdict.why)
