"""A fit: the posterior draws of a model on data, and what may be done with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from prism_jax.errors import FitError
from prism_jax.variability.tree import Variability

from .data.measurements import Hygiene
from .diagnostics import Verdict
from .models.base import Model
from .sampled import Sampled


@dataclass(frozen=True)
class Fit:
    """What `prism_jax.fit` returns.

    Attributes:
        model: the model that was fitted.
        data: its data (see the model's file).
        sampled: draws by site, [chain, draw, ...], and sampler statistics.
        method: "nuts", "svi" or "map".
        verdict: whether to trust the draws.
        hygiene: rows read, kept and dropped, by rule.
        elapsed_s: wall-clock time of the fit.
        record: inputs, seed and versions.
    """

    model: Model[Any]
    data: Any
    sampled: Sampled
    method: str
    verdict: Verdict
    hygiene: Hygiene
    elapsed_s: float
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """Site -> [draw, ...], chains one after the other."""
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in self.sampled.draws.items()}

    def describe(self) -> dict[str, Any]:
        """What the fit says, as plain values: parameters with 90 % intervals, variance shares, notes."""
        return self.model.describe(self.data, self.draws)

    def to_variability(self, *, force: bool = False) -> Variability:
        """The tree at the posterior mean, for `predict`.

        Raises:
            FitError: the verdict is failed and `force` is not set, or the model describes a cost.
        """
        self._check(force)
        return self.model.variability(self.data, {name: value.mean(axis=0) for name, value in self.draws.items()})

    def variability_draws(self, n: int, *, key: jax.Array, force: bool = False) -> list[Variability]:
        """Trees of `n` posterior draws; the spread of what they predict is the epistemic band.

        Raises:
            FitError: as `to_variability`.
        """
        self._check(force)
        draws = self.draws
        n_draw = len(next(iter(draws.values())))
        chosen = np.asarray(jax.random.choice(key, n_draw, (min(n, n_draw),), replace=False))
        return [self.model.variability(self.data, {name: value[i] for name, value in draws.items()}) for i in chosen]

    def save(self, path: str | Path) -> None:
        """Writes the fit as netCDF with the groups of ArviZ, whole or not at all."""
        from .store import save

        save(self, path)

    @staticmethod
    def load(path: str | Path) -> Fit:
        """The fit in a file that `save` wrote.

        Raises:
            DataError: it is no such file.
        """
        from .store import load

        return load(path)

    def _check(self, force: bool) -> None:
        if not (self.verdict.ok or force):
            raise FitError(f"this fit is not to be used: {self.verdict.sentence}. Pass force=True (--force) to use it all the same.")
