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

from .site_runs import SiteRuns
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
    with jax.enable_x64(True):
        given, law = _arrays(runs), _law(prior, runs)
        mode = _mode(given, law)
        slope = np.asarray(_slope(jnp.asarray(mode), given, law))  # [run, parameter]
        noise = np.asarray(jax.random.normal(key, (n_draw, len(mode)), dtype=float))
    information = (DEGREES + 1.0) / (DEGREES + 3.0) * runs.weight / np.asarray(law["scale"]) ** 2
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


def _mode(given: Mapping[str, Any], law: Mapping[str, Any]) -> Floats:
    """[parameter] standard normals of the prior: knobs, then the site."""

    def energy(vector: Floats) -> tuple[float, Floats]:
        value, slope = _energy(jnp.asarray(vector), given, law)
        return float(value), np.asarray(slope, dtype=float)

    options = {"maxiter": MAX_ITERATION, "ftol": TOLERANCE}
    found = minimize(energy, np.zeros(len(KNOBS) + 1), jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(found.fun):
        raise FitError(
            f"no calibration describes these runs ({found.message}). Look for measured times that are wrong."
        )
    return found.x


def _expected(z: jax.Array, given: Mapping[str, Any], law: Mapping[str, Any]) -> jax.Array:
    """[run] logarithm of the seconds."""
    values = law["mean"] + law["factor"] @ z[:-1]
    fix = Correction(**{knob: linked(knob, values[index], jnp) for index, knob in enumerate(KNOBS)})
    seconds = outline_seconds(Outline(**{item.name: given[item.name] for item in fields(Outline)}), fix, jnp)
    return jnp.log(seconds) + given["left_out"] + law["site_sd"] * z[-1]


def _negative_log(z: jax.Array, given: Mapping[str, Any], law: Mapping[str, Any]) -> jax.Array:
    residual = (given["log_measured"] - _expected(z, given, law)) / law["scale"]
    return 0.5 * (z**2).sum() + 0.5 * (DEGREES + 1.0) * (given["weight"] * jnp.log1p(residual**2 / DEGREES)).sum()


_energy = jax.jit(jax.value_and_grad(_negative_log))
_slope = jax.jit(jax.jacfwd(_expected))


def _arrays(runs: SiteRuns) -> dict[str, Any]:
    found = {item.name: getattr(runs, item.name) for item in fields(runs)}
    return {name: jnp.asarray(value) for name, value in found.items() if isinstance(value, np.ndarray)}


def _law(prior: SitePrior, runs: SiteRuns) -> dict[str, Any]:
    wider = np.where(runs.has_experts > 0.0, prior.expert_misfit, 1.0)
    return {
        "mean": jnp.asarray(prior.mean),
        "factor": jnp.asarray(prior.factor),
        "site_sd": jnp.asarray(prior.site_sd),
        "scale": jnp.asarray(prior.misfit * wider),
    }
