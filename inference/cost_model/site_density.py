"""The calibration of one site: what is known of the population, and how a few of the site's own runs move it.

    ln(measured) = ln(surrogate_of(correction)) + left out + site + own
    correction   = link(population + deviation of the site)         per knob; population ~ its posterior, with covariances,
                                                                    its middle that of each run's own software
    site         ~ Normal(0, site_sd)                               whatever no knob explains
    own          ~ misfit Student-t                                 a configuration, and runs that are wrong
    ln(misfit)   ~ Normal(population's median, misfit_sd)

Given the misfit it is fitted at the mode, with the curvature there: 15 numbers, milliseconds. They are standard normals of the
prior, one per knob, then the site's factor; the curvature is the expected one, as in `calibrate.py`, so that bad runs do not bend
it. The misfit is integrated over at the nodes of Gauss and Hermite, weighted by the evidence that the runs have for each.

The result speaks of this site alone. Its factor is folded into the knobs: the time of a step is linear in all factors of
seconds and in all seconds together, so that whatever predicts with the mean of the knobs has the factor in it. What the knobs
leave of the runs carries over to jobs like them (`prism_jax/calibration/surrogate.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import log
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.calibration.calibration import DEGREES, KNOBS, MISFIT, Calibration, Term, linked
from prism_jax.calibration.key import CalibrationKey, Level
from prism_jax.calibration.surrogate import (
    MOST,
    ResidualGP,
    StepSurrogate,
    parts_of_outline,
    sensitivities,
    surrogate_seconds,
    weight_of,
)
from prism_jax.core.arrays import Floats
from prism_jax.core.errors import FitError
from prism_jax.cost.efficiency import OF_SECONDS, CostCorrection

from ..engine.diagnostics import one_blas_thread
from .site_runs import SitePrior, SiteRuns, run_corrections, site_prior, some_of

MAX_ITERATION = 50
MAX_HALVING = 12  # of a step: the density has kinks
TOLERANCE = 1e-6  # of the log density, relative
FEWEST = 8  # runs that a compiled fit holds
# What all jobs of a site share; they may differ in every other level.
OF_SITE = (
    Level.ALL,
    Level.GENERATION,
    Level.DEVICE,
    Level.STYLE,
    Level.GENERATION_STYLE,
    Level.FRAMEWORK,
    Level.WORKLOAD,
)


@dataclass(frozen=True)
class SiteMode:
    """Mode of the density of the parameters.

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
        self._runs: dict[str, Any] = {name: jnp.asarray(part) for name, part in parts_of_outline(runs).items()}
        self._runs |= {"left_out": jnp.asarray(runs.left_out), "apart": jnp.asarray(prior.apart[runs.kind])}
        self._prior = tuple(jnp.asarray(value) for value in (prior.mean, prior.factor, prior.site_sd))
        self.n_dim = len(KNOBS) + 1

    def residuals(self, z: Floats) -> tuple[Floats, Floats]:
        """Logarithm of measured over expected [run], and d expected / d parameters [run, parameter]."""
        slope, expected = _expected(jnp.asarray(z), self._runs, self._prior)
        return self._measured - np.asarray(expected), np.asarray(slope)

    def mode(self, misfit: float, start: Floats) -> SiteMode:
        """Finds the mode of the density if configurations deviate by `misfit`: steps of Gauss and Newton, halved until they help.

        Raises:
            FitError: nowhere.
        """
        scale = misfit * self._wider
        at, (residual, slope) = start, self.residuals(start)
        value = self._energy(at, residual / scale)
        for _ in range(MAX_ITERATION):
            ratio = residual / scale
            # Of a run, the less the further it is off
            pull = self._weight * (DEGREES + 1.0) / (DEGREES + ratio**2) / scale**2
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
        return SiteMode(np.asarray(at, dtype=float), root, evidence)

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
    """Adds runs without weight up to the next power of two: few shapes, few compilations."""
    n = max(FEWEST, 1 << (runs.n_run - 1).bit_length())
    whole = some_of(runs, np.minimum(np.arange(n), runs.n_run - 1))
    return replace(whole, weight=np.where(np.arange(n) < runs.n_run, whole.weight, 0.0))


@jax.jit
@partial(jax.jacfwd, has_aux=True)
def _expected(z: jax.Array, runs: dict[str, Any], prior: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
    """[run] logarithm of the seconds; twice, so that the derivative keeps the value."""
    mean, factor, site_sd = prior
    values = mean + factor @ z[:-1]
    of_run = values[:, None] + runs["apart"].T
    correction = CostCorrection(**{knob: linked(knob, of_run[index], jnp) for index, knob in enumerate(KNOBS)})
    seconds = surrogate_seconds(
        StepSurrogate(**{item.name: runs[item.name] for item in fields(StepSurrogate)}), correction, jnp
    )
    found = jnp.log(seconds) + runs["left_out"] + site_sd * z[-1]
    return found, found


N_NODE = 7  # of the misfit
MAX_WIDTH = 1.0  # of ln(misfit), standard deviation: more is no knowledge


@dataclass(frozen=True)
class SitePosterior:
    """Draws of a site.

    Attributes:
        knobs: [draw, knob] on the link's scale; their mean is that of the modes.
        site: [draw] log factor.
        misfit: [draw] scale of a configuration's own log factor.
    """

    knobs: Floats
    site: Floats
    misfit: Floats


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
    found = posterior(site_prior(calibration, runs), runs, calibration.n_draw, key)
    return of_site(calibration, found, runs, record)


def posterior(prior: SitePrior, runs: SiteRuns, n_draw: int, key: jax.Array) -> SitePosterior:
    """Draws of the normal laws around the modes, of every misfit as many as the runs have evidence for it.

    Raises:
        FitError: no mode is found.
    """
    with jax.enable_x64(True):
        noise = np.asarray(jax.random.normal(key, (n_draw, len(KNOBS) + 1), dtype=float))
        law = SiteDensity(prior, runs)
        nodes, weight = np.polynomial.hermite_e.hermegauss(N_NODE)
        misfits = prior.misfit * np.exp(min(prior.misfit_sd, MAX_WIDTH) * nodes)
        modes, at = [], np.zeros(law.n_dim)
        for misfit in misfits[::-1]:  # from loose to tight, each from where the one before ended
            modes.append(law.mode(float(misfit), at))
            at = modes[-1].at
    modes = modes[::-1]
    evidence = np.array([mode.log_evidence for mode in modes])
    share = weight * np.exp(evidence - evidence.max())
    share = share / share.sum()
    chosen = np.searchsorted(np.cumsum(share), (np.arange(n_draw) + 0.5) / n_draw).clip(max=N_NODE - 1)
    drawn = np.stack([modes[j].at + np.linalg.solve(modes[j].root.T, e) for j, e in zip(chosen, noise, strict=True)])
    drawn = drawn - drawn.mean(axis=0) + share @ np.stack([mode.at for mode in modes])
    knobs = prior.mean + drawn[:, :-1] @ prior.factor.T
    return SitePosterior(knobs, prior.site_sd * drawn[:, -1], misfits[chosen])


def of_site(
    calibration: Calibration, found: SitePosterior, runs: SiteRuns, record: Mapping[str, Any] | None = None
) -> Calibration:
    """The calibration that says the same of whatever it is asked for: the posterior of this site, and the runs it is from."""
    # Jobs of another date differ by the years between; what the years of the site's own date add is in its knobs already
    of_seconds = found.site - _of_date(calibration, runs.setting)
    folded = {
        knob: found.knobs[:, index] + (of_seconds if knob in OF_SECONDS else 0.0) for index, knob in enumerate(KNOBS)
    }
    about = {
        **runs.setting._asdict() | {"software": asdict(runs.setting.software)},
        "n_run": int((runs.weight > 0.0).sum()),
        "site_factor": float(np.exp(found.site.mean())),
        "corrections": {knob: float(linked(knob, found.knobs[:, index].mean())) for index, knob in enumerate(KNOBS)},
    }
    of_site = (Term(knob, "all", 0.0, ("all",), value[:, None]) for knob, value in folded.items())
    made = replace(
        calibration,
        centre=dict.fromkeys(KNOBS, 0.0),
        terms=(*of_site, *_of_jobs(calibration, runs.setting)),
        misfit=found.misfit,
        misfit_sd=np.zeros(calibration.n_draw),
        site=np.zeros(calibration.n_draw),
        record={**about, **(record or {})},
    )
    return replace(made, nearby=_nearby(made, runs))


def _of_date(calibration: Calibration, site: CalibrationKey) -> Floats:
    """[draw] what the date of the site's software adds to all seconds."""
    kind = site.members()[Level.DATE]
    dated = (one for one in calibration.terms if one.level == Level.DATE and kind in one.names)
    return sum((site.years * one.value[:, one.names.index(kind)] for one in dated), np.zeros(calibration.n_draw))


def _of_jobs(calibration: Calibration, site: CalibrationKey) -> Iterator[Term]:
    """Yields the terms in which jobs of one site may differ (kernels, compilation, adapters), relative to all its runs."""
    own = site.members()
    for term in calibration.terms:
        if term.knob == MISFIT or term.level in OF_SITE or not term.names:
            continue
        if term.level == Level.DATE:
            yield term
            continue
        member = own[term.level]
        start = term.value[:, [term.names.index(member)]] if member in term.names else 0.0
        unsaid = "" in term.names
        names = term.names if unsaid else ("", *term.names)
        value = term.value - start if unsaid else np.pad(term.value - start, ((0, 0), (1, 0)))
        yield replace(term, names=names, value=value)


def _nearby(made: Calibration, runs: SiteRuns) -> ResidualGP:
    """Gaussian process of the residuals that the mean of the knobs leaves in the runs that count."""
    seen = some_of(runs, np.flatnonzero(runs.weight > 0.0)[:MOST])
    correction = run_corrections(made, seen)
    left = seen.log_measured - seen.left_out - np.log(surrogate_seconds(seen, correction))
    misfit = np.median(made.misfit) * np.where(seen.has_experts > 0.0, made.expert_misfit, 1.0)
    return ResidualGP(sensitivities(seen, correction), left, weight_of(left, misfit))
