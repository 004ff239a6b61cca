"""The law of a site's runs, given how far configurations deviate by themselves: its density, its mode, its curvature there.

Parameters are standard normals of the prior: one per knob, then the site's factor. Curvature is the expected one, as in
`calibrate.py`, so that bad runs do not bend it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from math import log
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax._typing import Floats
from prism_jax.calibration.calibration import DEGREES, KNOBS, linked
from prism_jax.calibration.surrogate import StepSurrogate, surrogate_seconds
from prism_jax.cost.correction import CostCorrection
from prism_jax.errors import FitError

from .prior import SitePrior
from .runs import SiteRuns, some_of

MAX_ITERATION = 50
MAX_HALVING = 12  # of a step: the density has kinks
TOLERANCE = 1e-6  # of the log density, relative
FEWEST = 8  # runs that a compiled fit holds


@dataclass(frozen=True)
class Mode:
    """Where the density of the parameters is highest.

    Attributes:
        at: [parameter]
        root: [parameter, parameter] lower triangular root of the curvature.
        log_evidence: logarithm of the runs' density with the parameters integrated out, by Laplace's rule.
    """

    at: Floats
    root: Floats
    log_evidence: float


class SiteDensity:
    """Runs of a site under its prior. Use it under `jax.enable_x64`."""

    def __init__(self, prior: SitePrior, runs: SiteRuns) -> None:
        runs = padded(runs)
        self._wider = np.where(runs.has_experts > 0.0, prior.expert_misfit, 1.0)
        self._weight, self._measured = runs.weight, runs.log_measured
        self._runs: dict[str, Any] = {
            item.name: jnp.asarray(getattr(runs, item.name)) for item in fields(StepSurrogate)
        }
        self._runs["left_out"] = jnp.asarray(runs.left_out)
        self._prior = tuple(jnp.asarray(value) for value in (prior.mean, prior.factor, prior.site_sd))
        self.n_dim = len(KNOBS) + 1

    def residuals(self, z: Floats) -> tuple[Floats, Floats]:
        """Logarithm of measured over expected [run], and d expected / d parameters [run, parameter]."""
        slope, expected = _expected(jnp.asarray(z), self._runs, self._prior)
        return self._measured - np.asarray(expected), np.asarray(slope)

    def mode(self, misfit: float, start: Floats) -> Mode:
        """Where the density is highest if configurations deviate by `misfit`: steps of Gauss and Newton, halved until they help.

        Raises:
            FitError: nowhere.
        """
        scale = misfit * self._wider
        at, (residual, slope) = start, self.residuals(start)
        value = self._energy(at, residual / scale)
        for _ in range(MAX_ITERATION):
            ratio = residual / scale
            pull = (
                self._weight * (DEGREES + 1.0) / (DEGREES + ratio**2) / scale**2
            )  # of a run, the less the further it is off
            curvature = np.eye(self.n_dim) + slope.T @ (pull[:, None] * slope)
            step = np.linalg.solve(curvature, slope.T @ (pull * residual) - at).astype(float)
            found = self._along(at, step, value, scale)
            if found is None:
                break
            gain = value - found[1]
            at, value, (residual, slope) = found
            if gain < TOLERANCE * (1.0 + abs(value)):
                break
        if not np.isfinite(value):
            raise FitError("the calibration did not converge on these runs; check the measured times.")
        weight = (DEGREES + 1.0) / (DEGREES + 3.0) * self._weight / scale**2
        root = np.linalg.cholesky(np.eye(self.n_dim) + slope.T @ (weight[:, None] * slope)).astype(float)
        evidence = -value - float(np.log(np.diag(root)).sum()) - float(self._weight.sum()) * log(misfit)
        return Mode(np.asarray(at, dtype=float), root, evidence)

    def _along(
        self, at: Floats, step: Floats, value: float, scale: Floats
    ) -> tuple[Floats, float, tuple[Floats, Floats]] | None:
        """The first point on the way back from `at + step` that is better, its energy, residuals and slopes; None if none is."""
        for halving in range(MAX_HALVING):
            there = at + 0.5**halving * step
            found = self.residuals(there)
            energy = self._energy(there, found[0] / scale)
            if energy < value:
                return there, energy, found
        return None

    def _energy(self, at: Floats, ratio: Floats) -> float:
        """Negative log density, but for constants."""
        return float(0.5 * at @ at + 0.5 * (DEGREES + 1.0) * self._weight @ np.log1p(ratio**2 / DEGREES))


def padded(runs: SiteRuns) -> SiteRuns:
    """As many runs as the next power of two, those added without weight: few shapes, few compilations."""
    n = max(FEWEST, 1 << (runs.n_run - 1).bit_length())
    whole = some_of(runs, np.minimum(np.arange(n), runs.n_run - 1))
    return replace(whole, weight=np.where(np.arange(n) < runs.n_run, whole.weight, 0.0))


@jax.jit
@partial(jax.jacfwd, has_aux=True)
def _expected(z: jax.Array, runs: dict[str, Any], prior: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """[run] logarithm of the seconds; twice, so that the derivative keeps the value."""
    mean, factor, site_sd = prior
    values = mean + factor @ z[:-1]
    of_run = jnp.broadcast_to(values[:, None], (len(KNOBS), len(runs["left_out"])))
    correction = CostCorrection(**{knob: linked(knob, of_run[index], jnp) for index, knob in enumerate(KNOBS)})
    seconds = surrogate_seconds(
        StepSurrogate(**{item.name: runs[item.name] for item in fields(StepSurrogate)}), correction, jnp
    )
    found = jnp.log(seconds) + runs["left_out"] + site_sd * z[-1]
    return found, found
