"""The calibration of one site: what is known of the population, and how a few of the site's own runs move it.

    ln(measured) = ln(outline(correction)) + left out + site + own
    correction   = link(population + deviation of the site)         per knob; population ~ its posterior, with covariances
    site         ~ Normal(0, site_sd)                               whatever no knob explains
    own          ~ misfit Student-t                                 a configuration, and runs that are wrong

It is fitted at the mode, with the expected curvature around it, like the population's (`calibrate.py`): 15 numbers, milliseconds.
The result speaks of this site alone. Its factor is folded into the knobs: the time of a step is linear in all factors of
seconds and in all seconds together, so that whatever predicts with the mean of the knobs has the factor in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from prism_jax.cost.calibration import DEGREES, KNOBS, Calibration, Term, linked
from prism_jax.cost.correction import Correction
from prism_jax.cost.outline import Outline, outline_seconds
from prism_jax.errors import FitError

from .site_runs import SiteRuns, some_of
from .threads import one_blas_thread

Floats = NDArray[np.float64]

# Standard deviation of a site's own deviation, on the link's scale: how much set-ups of one device and one framework differ.
# Assumed, not tuned on scores.
SITE_DEVIATION: Mapping[str, float] = {
    "gemm": 0.03,  # the same libraries, other versions and clocks
    "attention": 0.15,  # which kernel of its generation runs
    "memory": 0.1,  # how much is fused
    "expert": 0.15,  # dispatcher and balance of the experts
    "host": 0.2,  # CPU and version of Python
    "scale_up": 0.15,  # NVLink generations and PCIe under one name
    "network": 0.25,  # topology, routing, other tenants
    "scale_up_call_s": 0.6,  # how far apart ranks arrive
    "network_call_s": 0.6,
    "hidden": 0.8,  # buckets, streams and prefetch are settings
    "optimizer": 0.2,  # fused or not
    "micro_batch_s": 0.7,  # data loader and logging are settings
    "step_s": 0.7,
    "network_step_s": 0.7,
}
NOT_SECONDS = (
    "expert",
    "hidden",
)  # on top of other factors, and a share: a factor of all seconds leaves them as they are
SEEDS = 8  # of the fresh draws that members never seen deviate by, in the covariance of the prior
MAX_ITERATION = 200
TOLERANCE = 1e-10  # of the log density, relative
FEWEST = 8  # runs that a compiled fit holds
EDGE = 1e-9  # of a share, from 0 and 1


@dataclass(frozen=True)
class SitePrior:
    """What is known of a site before any run of its own.

    Attributes:
        mean: [knob] on the link's scale.
        factor: [knob, knob] lower triangular root of the covariance, the site's own deviation included.
        site_sd: of the log factor of the site.
        misfit, expert_misfit: scale of a configuration's own log factor, and how much wider it is with experts.
    """

    mean: Floats
    factor: Floats
    site_sd: float
    misfit: float
    expert_misfit: float


@dataclass(frozen=True)
class SitePosterior:
    """Draws of a site's knobs on the link's scale [draw, knob] and of its log factor [draw]; their means are the mode."""

    knobs: Floats
    site: Floats


@one_blas_thread
def calibrate_site(
    calibration: Calibration, runs: SiteRuns, *, key: jax.Array, record: Mapping[str, Any] | None = None
) -> Calibration:
    """`calibration` as the runs of a site change it; without runs (of any weight), as it is.

    Args:
        calibration: of the population.
        runs: of the site, weighted.
        key: seed of the draws.
        record: how it was made, kept with the result.

    Raises:
        FitError: no mode is found.
    """
    if not runs.weight.any():
        return calibration
    found = posterior(site_prior(calibration, runs.generation, runs.framework), runs, calibration.n_draw, key)
    own = {"generation": runs.generation, "framework": runs.framework, "n_run": int((runs.weight > 0.0).sum())}
    return of_site(calibration, found, {**own, **(record or {})})


def site_prior(calibration: Calibration, generation: str, framework: str) -> SitePrior:
    """Normal law of the knobs of a site of that generation and framework."""
    drawn = [on_link(calibration.corrections(generation, framework, seed)) for seed in range(SEEDS)]
    covariance = np.cov(np.concatenate(drawn), rowvar=False)
    own = np.array([SITE_DEVIATION[knob] for knob in KNOBS])
    return SitePrior(
        mean=on_link(calibration.correction(generation, framework)),
        factor=np.linalg.cholesky(covariance + np.diag(own**2)).astype(float),
        site_sd=float(np.median(calibration.site_sd)),
        misfit=float(np.median(calibration.misfit)),
        expert_misfit=calibration.expert_misfit,
    )


def posterior(prior: SitePrior, runs: SiteRuns, n_draw: int, key: jax.Array) -> SitePosterior:
    """Draws of the normal law around the mode.

    Raises:
        FitError: no mode is found.
    """
    runs = _padded(runs)
    with jax.enable_x64(True):
        found = _Curve(prior, runs)
        mode = _mode(found)
        _, slope = found(mode)
        noise = np.asarray(jax.random.normal(key, (n_draw, len(mode)), dtype=float))
    information = (DEGREES + 1.0) / (DEGREES + 3.0) * runs.weight / found.scale**2
    root = np.linalg.cholesky(np.eye(len(mode)) + slope.T @ (information[:, None] * slope))
    drawn = mode + np.linalg.solve(root.T, (noise - noise.mean(axis=0)).T).T
    return SitePosterior(prior.mean + drawn[:, :-1] @ prior.factor.T, prior.site_sd * drawn[:, -1])


def of_site(calibration: Calibration, found: SitePosterior, record: Mapping[str, Any]) -> Calibration:
    """The calibration that says the same of whatever it is asked for: the posterior of this site."""
    folded = {
        knob: found.knobs[:, index] + (0.0 if knob in NOT_SECONDS else found.site) for index, knob in enumerate(KNOBS)
    }
    about = {
        "site_factor": float(np.exp(found.site.mean())),
        "corrections": {knob: float(linked(knob, found.knobs[:, index].mean())) for index, knob in enumerate(KNOBS)},
    }
    return replace(
        calibration,
        centre=dict.fromkeys(KNOBS, 0.0),
        terms=tuple(Term(knob, "all", 0.0, ("all",), value[:, None]) for knob, value in folded.items()),
        site=np.zeros(calibration.n_draw),
        record={**about, **record},
    )


def on_link(fix: Correction) -> Floats:
    """[knob] or [draw, knob] on the link's scale: logarithms, and the logit of a share."""
    values = {knob: np.asarray(getattr(fix, knob), dtype=float) for knob in KNOBS}
    share = np.clip(values["hidden"], EDGE, 1.0 - EDGE)
    return np.stack([np.log(share / (1.0 - share)) if k == "hidden" else np.log(v) for k, v in values.items()], axis=-1)


class _Curve:
    """[parameter] standard normals of the prior (knobs, then the site) -> residuals [run] and what moves what is expected.

    Attributes:
        scale: [run] of a run's own log factor.
        weight: [run]
    """

    def __init__(self, prior: SitePrior, runs: SiteRuns) -> None:
        self.scale = prior.misfit * np.where(runs.has_experts > 0.0, prior.expert_misfit, 1.0)
        self.weight = runs.weight
        self._measured = runs.log_measured
        self._runs = {item.name: jnp.asarray(getattr(runs, item.name)) for item in fields(Outline)}
        self._runs["left_out"] = jnp.asarray(runs.left_out)
        self._prior = tuple(jnp.asarray(value) for value in (prior.mean, prior.factor, prior.site_sd))

    def __call__(self, z: Floats) -> tuple[Floats, Floats]:
        """Standardised residuals [run], and d expected / d z [run, parameter]."""
        slope, expected = _expected(jnp.asarray(z), self._runs, self._prior)
        return (self._measured - np.asarray(expected)) / self.scale, np.asarray(slope)

    def energy(self, z: Floats) -> tuple[float, Floats]:
        """Negative log density and its gradient."""
        residual, slope = self(z)
        value = 0.5 * z @ z + 0.5 * (DEGREES + 1.0) * self.weight @ np.log1p(residual**2 / DEGREES)
        pull = self.weight * (DEGREES + 1.0) * residual / (DEGREES + residual**2) / self.scale
        return float(value), z - slope.T @ pull


@jax.jit
@partial(jax.jacfwd, has_aux=True)
def _expected(z: jax.Array, runs: dict[str, jax.Array], prior: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """[run] logarithm of the seconds; twice, so that the derivative keeps the value."""
    mean, factor, site_sd = prior
    values = mean + factor @ z[:-1]
    fix = Correction(**{knob: linked(knob, values[index], jnp) for index, knob in enumerate(KNOBS)})
    seconds = outline_seconds(Outline(**{item.name: runs[item.name] for item in fields(Outline)}), fix, jnp)
    found = jnp.log(seconds) + runs["left_out"] + site_sd * z[-1]
    return found, found


def _mode(curve: _Curve) -> Floats:
    """[parameter]"""
    options = {"maxiter": MAX_ITERATION, "ftol": TOLERANCE}
    found = minimize(curve.energy, np.zeros(len(KNOBS) + 1), jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(found.fun):
        raise FitError(
            f"no calibration describes these runs ({found.message}). Look for measured times that are wrong."
        )
    return found.x


def _padded(runs: SiteRuns) -> SiteRuns:
    """As many runs as the next power of two, those added without weight: few shapes, few compilations."""
    n = max(FEWEST, 1 << (runs.n_run - 1).bit_length())
    index = np.minimum(np.arange(n), runs.n_run - 1)
    whole = some_of(runs, index)
    return replace(whole, weight=np.where(np.arange(n) < runs.n_run, whole.weight, 0.0))
