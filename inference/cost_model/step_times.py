"""How far whole training steps are from what kernels and links alone would take: the calibration of the cost model.

    ln(measured) = ln(surrogate_of(correction)) + straggler + open + site + own
    correction   = link(centre + all + generation + device + style + generation style + framework)      per knob
    site         ~ Student-t(0, site_sd and the spread of what is open)   a cluster and its software, as they were set up there
    open         the mean over what the row leaves unsaid (`open_fields`); what it is instead is part of its site
    own          ~ scale[site] wider[kind of model] Student-t                 a configuration, and rows that are wrong

Rows of one site share what the model misses, so a site counts as at most `MAX_ROWS` independent rows. Deviations are sampled as
standard normals and scaled; their scales are assumed (`TERMS`), not fitted: no level has members enough to tell them.

What is the site's own is integrated out where spreads are decided, by Laplace's method: "volume of sites" is the logarithm of
the width of its posterior. Without it the density has no bound as the spread of sites goes to 0, where a table has a row or two
of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpy.typing import NDArray
from numpyro.distributions import StudentT

from prism_jax.calibration.calibration import DEGREES, KNOBS, MISFIT, SITE_DEGREES, Calibration, Term, linked
from prism_jax.calibration.key import LEVELS, Level
from prism_jax.calibration.surrogate import surrogate_seconds
from prism_jax.cost.correction import CostCorrection

from .step_times_data import StepTimesData, field_of
from .step_times_terms import CENTRE, EXPERT_MISFIT, MISFIT_SD, NEW_SITE, SHIFT, SITE_SD, TERMS, USUAL_MISFIT, Assumed

EXPECTED, SCALE = "expected", "scale"  # names in the model, per row
N_SITE = "sites with rows"
# Fisher information, at scale 1, of the place of a site and of a row, which are Student-t, and of a row's log scale.
OF_SITE, OF_ROW = ((nu + 1.0) / (nu + 3.0) for nu in (SITE_DEGREES, DEGREES))
OF_SCALE = 2.0 * DEGREES / (DEGREES + 3.0)


@dataclass(frozen=True)
class StepTimes:
    """The model; see the module. It is fitted by `inference.cost_model.calibrate`.

    Attributes:
        terms: deviations that are fitted; others are zero.
    """

    name: ClassVar[str] = "step_times"

    terms: tuple[Assumed, ...] = TERMS

    def program(self, data: StepTimesData) -> None:
        """The NumPyro model of log step times; arrays of `data` are traced, names are static."""
        summed = dict(zip(KNOBS, jnp.asarray(data.centre).T, strict=True)) | {MISFIT: jnp.zeros(len(data.weight))}
        for term in self._with_members(data):
            names = data.names[term.level]
            z = numpyro.sample(term.site, dist.Normal(jnp.zeros(len(names)), 1.0).to_event(1))
            value = numpyro.deterministic(
                f"{term.site} value", shift(term, names) + spread(term, names) * jnp.asarray(z)
            )
            index = jnp.asarray(getattr(data, field_of(term.level)))
            seen = jnp.append(jnp.asarray(value), 0.0)[index]  # the last for members that have no name
            summed[term.knob] = summed[term.knob] + seen
        correction = CostCorrection(**{knob: linked(knob, summed[knob], jnp) for knob in KNOBS})
        time_s = surrogate_seconds(data, correction, jnp)
        n_site = len(data.names["site"])
        weight = jnp.asarray(data.weight)
        present = jnp.zeros(n_site, bool).at[jnp.asarray(data.site)].max(weight > 0.0)
        numpyro.deterministic(N_SITE, present.sum())
        site_sd = numpyro.sample("site_sd", dist.LogNormal(*SITE_SD))
        site_open = _mean_of_sites(jnp.asarray(data.open_sd) ** 2, jnp.asarray(data.site), n_site)
        spread_of_site = jnp.sqrt(jnp.asarray(site_sd) ** 2 + site_open)
        law_of_site = StudentT(SITE_DEGREES, jnp.zeros(n_site), spread_of_site)
        site = numpyro.sample("site", law_of_site.mask(present).to_event(1))
        misfit = numpyro.sample("misfit", dist.LogNormal(*USUAL_MISFIT))
        misfit_sd = numpyro.sample("misfit_sd", dist.LogNormal(*MISFIT_SD))
        scale = numpyro.sample(
            "log scale", dist.Normal(jnp.full(n_site, jnp.log(misfit)), misfit_sd).mask(present).to_event(1)
        )
        wider = jnp.where(jnp.asarray(data.has_experts) > 0.0, EXPERT_MISFIT, 1.0) * jnp.exp(summed[MISFIT])
        at = jnp.asarray(data.site)
        expected = numpyro.deterministic(
            EXPECTED, jnp.log(time_s) + jnp.asarray(data.straggler + data.open_mean) + jnp.asarray(site)[at]
        )
        width = numpyro.deterministic(SCALE, jnp.exp(jnp.asarray(scale))[at] * wider)
        law = StudentT(DEGREES, expected, width)
        numpyro.factor("rows", (weight * law.log_prob(jnp.asarray(data.log_measured))).sum())
        place = OF_SITE / spread_of_site**2 + jax.ops.segment_sum(weight * OF_ROW / width**2, at, n_site)
        log_scale = 1.0 / jnp.asarray(misfit_sd) ** 2 + jax.ops.segment_sum(weight * OF_SCALE, at, n_site)
        volume = -0.5 * jnp.log(place * log_scale)
        numpyro.factor("volume of sites", jnp.where(present, volume, 0.0).sum())

    def _with_members(self, data: StepTimesData) -> list[Assumed]:
        """Terms that some row has part in."""
        return [term for term in self.terms if data.names[term.level]]

    @staticmethod
    def prior_precision(sites: Mapping[str, Any]) -> dict[str, Any]:
        """Curvature of the prior of what is no standard normal, by unconstrained site; spreads are sampled as logarithms."""
        n_site = sites[N_SITE]
        return {
            "site": OF_SITE / sites["site_sd"] ** 2,
            "log scale": 1.0 / sites["misfit_sd"] ** 2,
            "site_sd": 1.0 / SITE_SD[1] ** 2 + 2.0 * n_site,
            "misfit": 1.0 / USUAL_MISFIT[1] ** 2 + n_site / sites["misfit_sd"] ** 2,
            "misfit_sd": 1.0 / MISFIT_SD[1] ** 2 + 2.0 * n_site,
        }

    def start(self, data: StepTimesData) -> dict[str, Any]:
        """Values of the sites at which the fit begins: the centres of the priors."""
        begin: dict[str, Any] = {term.site: np.zeros(len(data.names[term.level])) for term in self._with_members(data)}
        n_site = len(data.names["site"])
        return begin | {
            "site_sd": math.exp(SITE_SD[0]),
            "site": np.zeros(n_site),
            "misfit": math.exp(USUAL_MISFIT[0]),
            "misfit_sd": math.exp(MISFIT_SD[0]),
            "log scale": np.full(n_site, USUAL_MISFIT[0]),
        }


def _mean_of_sites(values: jax.Array, site: jax.Array, n_site: int) -> jax.Array:
    """[site] means of [row] values."""
    count = jax.ops.segment_sum(jnp.ones_like(values), site, n_site)
    return jax.ops.segment_sum(values, site, n_site) / jnp.maximum(count, 1.0)


def shift(term: Assumed, names: Sequence[str]) -> jax.Array:
    """[member] what is known of a member before any run."""
    return jnp.array([SHIFT.get((term.knob, term.level, name), 0.0) for name in names])


def spread(term: Assumed, names: Sequence[str]) -> jax.Array:
    """[member] prior standard deviation."""
    return jnp.array([term.sd_of(name) for name in names])


def calibration_of(
    data: StepTimesData,
    draws: Mapping[str, np.ndarray],
    record: Mapping[str, Any],
    fitted: tuple[Assumed, ...] = TERMS,
) -> Calibration:
    """The calibration that posterior draws [draw, ...] amount to; members without a row of any weight are unknown to it."""
    none = np.zeros((len(draws["site_sd"]), 0))
    seen = {level: seen_members(data, level) for level in LEVELS}
    terms = tuple(
        Term(
            t.knob,
            t.level,
            t.sd_unseen,
            tuple(data.names[t.level][i] for i in seen[t.level]),
            np.asarray(draws.get(f"{t.site} value", none))[:, seen[t.level]],
        )
        for t in fitted
    )
    return Calibration(
        centre=dict(CENTRE),
        terms=terms,
        site_sd=NEW_SITE * np.asarray(draws["site_sd"]),
        misfit=np.asarray(draws["misfit"]),
        misfit_sd=np.asarray(draws["misfit_sd"]),
        expert_misfit=EXPERT_MISFIT,
        record=record,
    )


def seen_members(data: StepTimesData, level: Level) -> NDArray[np.intp]:
    """Members of a level that some row with weight belongs to, in order."""
    index = getattr(data, field_of(level))[np.asarray(data.weight) > 0.0]
    return np.unique(index[index < len(data.names[level])])
