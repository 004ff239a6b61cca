"""The calibration of one site: what is known of the population, and how a few of the site's own runs move it.

    ln(measured) = ln(surrogate_of(correction)) + left out + site + own
    correction   = link(population + deviation of the site)         per knob; population ~ its posterior, with covariances
    site         ~ Normal(0, site_sd)                               whatever no knob explains
    own          ~ misfit Student-t                                 a configuration, and runs that are wrong
    ln(misfit)   ~ Normal(population's median, misfit_sd)

Given the misfit it is fitted at the mode, with the expected curvature around it (`site_law.py`): 15 numbers, milliseconds. The
misfit is integrated over at the nodes of Gauss and Hermite, weighted by the evidence that the runs have for each.

The result speaks of this site alone. Its factor is folded into the knobs: the time of a step is linear in all factors of
seconds and in all seconds together, so that whatever predicts with the mean of the knobs has the factor in it. What the knobs
leave of the runs carries over to jobs like them (`prism_jax/cost/nearby.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np

from prism_jax._typing import Floats
from prism_jax.calibration.calibration import KNOBS, Calibration, Term, linked
from prism_jax.calibration.residual_gp import MOST, ResidualGP, sensitivities, weight_of
from prism_jax.calibration.surrogate import surrogate_seconds
from prism_jax.cost.correction import OF_SECONDS

from ...engine.threads import one_blas_thread
from .density import SiteDensity
from .prior import SitePrior, site_prior
from .runs import SiteRuns, some_of

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
    found = posterior(site_prior(calibration, runs.setting), runs, calibration.n_draw, key)
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
    folded = {
        knob: found.knobs[:, index] + (found.site if knob in OF_SECONDS else 0.0) for index, knob in enumerate(KNOBS)
    }
    about = {
        **runs.setting._asdict() | {"software": asdict(runs.setting.software)},
        "n_run": int((runs.weight > 0.0).sum()),
        "site_factor": float(np.exp(found.site.mean())),
        "corrections": {knob: float(linked(knob, found.knobs[:, index].mean())) for index, knob in enumerate(KNOBS)},
    }
    made = replace(
        calibration,
        centre=dict.fromkeys(KNOBS, 0.0),
        terms=tuple(Term(knob, "all", 0.0, ("all",), value[:, None]) for knob, value in folded.items()),
        misfit=found.misfit,
        misfit_sd=np.zeros(calibration.n_draw),
        site=np.zeros(calibration.n_draw),
        record={**about, **(record or {})},
    )
    return replace(made, nearby=_nearby(made, runs))


def _nearby(made: Calibration, runs: SiteRuns) -> ResidualGP:
    """What the mean of the knobs leaves of the runs that count."""
    seen = some_of(runs, np.flatnonzero(runs.weight > 0.0)[:MOST])
    correction = made.correction(runs.setting)
    left = seen.log_measured - seen.left_out - np.log(surrogate_seconds(seen, correction))
    misfit = np.median(made.misfit) * np.where(seen.has_experts > 0.0, made.expert_misfit, 1.0)
    return ResidualGP(sensitivities(seen, correction), left, weight_of(left, misfit))
