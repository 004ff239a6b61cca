"""Calibration of the cost model: ratio of whole training steps to what kernels and links alone would take.

    ln(measured) = ln(surrogate_of(correction)) + straggler + open + site + own
    correction   = link(centre + all + generation + device + style + generation style + framework)      per knob
    site         ~ Student-t(0, site_sd and the spread of what is open)   a cluster and its software, as they were set up there
    open         the mean over what the row leaves unsaid (`open_fields`); what it is instead is part of its site
    own          ~ scale[site] wider[kind of model] Student-t                 a configuration, and rows that are wrong

Factors are logarithms (0.1 = 10%), shares logits, seconds logarithms of seconds. Rows of one site share what the model misses,
so a site counts as at most `MAX_ROWS` independent rows. Deviations are sampled as standard normals and scaled; their scales are
assumed (`TERMS`), not fitted: no level has members enough to tell them. They state how alike GPUs of one generation, software
of one style and frameworks are expected to be; the closer to kernels that were measured, the tighter.

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
from numpy.typing import ArrayLike, NDArray
from numpyro.distributions import StudentT

from prism_jax.calibration.calibration import DEGREES, KNOBS, MISFIT, SITE_DEGREES, Calibration, Term, linked
from prism_jax.calibration.key import LEVELS, STEP, CalibrationKey, Level
from prism_jax.calibration.open_fields import OpenField
from prism_jax.calibration.surrogate import StepSurrogate, parts_of_outline, surrogate_seconds
from prism_jax.cost.efficiency import CostCorrection


@dataclass(frozen=True)
class Assumed:
    """Assumed standard deviation of the members of a level in one knob, in `MISFIT`, or in `STEP`.

    Attributes:
        sd_unmeasured: where kernels of the member were not measured one by one; 0: as `sd`.
        sd_new: of a member without any row; 0: as the larger of the others.
    """

    knob: str
    level: Level
    sd: float
    sd_unmeasured: float = 0.0
    sd_new: float = 0.0

    @property
    def site(self) -> str:
        """Name in the model."""
        return f"{self.knob} {self.level}"

    def sd_of(self, member: str) -> float:
        """Standard deviation of a member; wider where its kernels were not measured one by one."""
        return self.sd if self.sd_unmeasured == 0.0 or member in MEASURED else self.sd_unmeasured

    @property
    def sd_unseen(self) -> float:
        """Standard deviation of a member that is not in the data."""
        return self.sd_new or self.sd_unmeasured or self.sd


CENTRE = {
    "gemm": 0.0,
    "attention": 0.0,
    "memory": 0.0,
    "fp8": 0.0,
    "expert": 0.0,
    "host": 0.0,
    "scale_up": 0.0,
    "network": 0.0,
    "scale_up_call_s": math.log(10e-6),  # arrival of the ranks and a stream wait: microseconds to tens of them
    "network_call_s": math.log(50e-6),
    "overlap_window": 1.0,  # three quarters
    "optimizer": 0.0,
    "micro_batch_s": math.log(0.2e-3),  # a send, a receive and a synchronisation of the host
    "step_s": math.log(3e-3),  # data loader, gradient norm, logging
    "network_step_s": math.log(1e-3),
}
_GIVEN = {  # knob: deviation of all, generation, device, style, generation style, framework, by `LEVELS`; 0: none
    "gemm": (0.01, 0.04, 0.05, 0.02, 0.0, 0.02),  # kernels were measured one by one; power limits differ by device
    "attention": (0.10, 0.0, 0.0, 0.0, 0.0, 0.0),
    "memory": (0.10, 0.05, 0.0, 0.05, 0.0, 0.02),  # how much is fused
    "fp8": (0.10, 0.05, 0.0, 0.0, 0.0, 0.0),  # eight bits draw less power: clocks are higher than in other products
    "expert": (0.20, 0.0, 0.0, 0.0, 0.0, 0.20),
    "host": (0.10, 0.0, 0.0, 0.20, 0.0, 0.10),  # a loop of Python in front of every kernel, or not
    "scale_up": (0.10, 0.10, 0.0, 0.0, 0.0, 0.05),
    "network": (0.05, 0.05, 0.0, 0.0, 0.0, 0.05),  # collectives across nodes were measured one by one
    "scale_up_call_s": (0.50, 0.0, 0.0, 0.30, 0.0, 0.10),
    "network_call_s": (1.0, 0.0, 0.0, 0.5, 0.0, 0.2),
    "overlap_window": (1.0, 0.0, 0.0, 0.5, 0.0, 0.3),
    "optimizer": (0.20, 0.0, 0.0, 0.20, 0.0, 0.10),
    "micro_batch_s": (0.8, 0.0, 0.0, 0.5, 0.0, 0.3),
    "step_s": (0.8, 0.0, 0.0, 0.5, 0.0, 0.3),
    "network_step_s": (0.5, 0.0, 0.0, 0.3, 0.0, 0.7),  # a matter of one cluster and its software
}
# Generations with tables of kernels, and kernels of attention whose speed is settled (cost/presets/efficiency.toml). Those of
# Blackwell still gain a third from release to release: FlashAttention-4 over cuDNN 9.13.
# Slopes per year of dense models stand on three kinds of evidence, those of models with experts on releases alone.
MEASURED = ("dense", "ampere", "hopper", "blackwell", "ampere flash2", "hopper flash2", "hopper flash3")
# Of other generations with rows, mostly of one source, the site takes most of what that source is off by: with 0.30 and 0.20 the
# generation took it. One without rows may be off by that much.
_UNMEASURED = {("gemm", Level.GENERATION): (0.10, 0.30), ("memory", Level.GENERATION): (0.10, 0.20)}
_OF_SOFTWARE = (  # how far kernels are from what their bytes, launches and speeds in the presets say
    Assumed("attention", Level.ATTENTION, 0.07, 0.20),
    Assumed("memory", Level.NORM, 0.06),
    Assumed("host", Level.COMPILE, 0.30),
    Assumed("host", Level.GRAPHS, 0.30),
    Assumed("micro_batch_s", Level.GRAPHS, 0.7),
    Assumed("step_s", Level.GRAPHS, 0.5),
    Assumed("gemm", Level.TUNING, 0.03),
    Assumed("attention", Level.TUNING, 0.04),
    Assumed("memory", Level.TUNING, 0.04),
    Assumed("expert", Level.TUNING, 0.05),
    Assumed("host", Level.TUNING, 0.10),
    Assumed("scale_up", Level.TUNING, 0.08),
    Assumed("network", Level.TUNING, 0.10),
    Assumed("overlap_window", Level.TUNING, 0.15),
    Assumed("step_s", Level.TUNING, 0.25),
)
_OF_STEPS = (Assumed(STEP, Level.DATE, 0.03, 0.10),)  # whole steps, per year
_OF_WORKLOADS = (  # how far kernels of models that are not transformers are from the laws of those of transformers
    Assumed("gemm", Level.WORKLOAD, 0.25),  # convolutions run as other products, small layers as none that was measured
    Assumed("attention", Level.WORKLOAD, 0.15),
    Assumed("memory", Level.WORKLOAD, 0.25),
    Assumed("host", Level.WORKLOAD, 0.40),
    Assumed("scale_up", Level.WORKLOAD, 0.20),
    Assumed("network", Level.WORKLOAD, 0.20),
    Assumed("network_call_s", Level.WORKLOAD, 1.0),
    Assumed("overlap_window", Level.WORKLOAD, 0.5),
    Assumed("optimizer", Level.WORKLOAD, 0.30),
    Assumed("step_s", Level.WORKLOAD, 1.0),
    Assumed("network_step_s", Level.WORKLOAD, 1.5),
    Assumed(MISFIT, Level.WORKLOAD, 0.5),  # steps of milliseconds leave more to chance than those of seconds
)
TERMS = (
    *(
        Assumed(knob, level, sd, *_UNMEASURED.get((knob, level), ()))
        for knob, sds in _GIVEN.items()
        for level, sd in zip(LEVELS, sds, strict=False)
        if sd > 0.0
    ),
    *_OF_SOFTWARE,
    *_OF_STEPS,
    *_OF_WORKLOADS,
)
# Graphs leave the host nothing to do between micro-batches; of a step, the loader and what is logged remain.
SHIFT = {
    # The same job, layout and GPUs under another container release: dense -.10 to -.12 per year (72 rows), rounds of MLPerf on
    # one generation -.104 +- .02. Experts -.42 to -.46 (116 rows) in all; half of it is what dispatchers, grouped products and
    # graphs of such dates are taken for already (`open_fields.RULES`), a share that was set in sight of left-out sources.
    (STEP, Level.DATE, "dense"): -0.10,
    (STEP, Level.DATE, "experts"): -0.20,
    ("micro_batch_s", Level.GRAPHS, "step"): -2.0,
    ("micro_batch_s", Level.GRAPHS, "layers"): -0.5,
    ("step_s", Level.GRAPHS, "step"): -0.7,
    # A step of some milliseconds leaves no time for what others do between steps: batches are made beforehand on the device,
    # ranks meet in every exchange of look-ups, and nothing is logged.
    ("step_s", Level.WORKLOAD, "dlrm"): -3.0,
    ("network_step_s", Level.WORKLOAD, "dlrm"): -5.0,
    ("network_call_s", Level.WORKLOAD, "dlrm"): -1.5,
}
# A site that nobody has measured is off by more than those in the fit differ, which have shaped what they are compared with. Of
# sources left out one by one, each counting once, 85% lie in their 90% interval at 1, 88% at 1.4, 90% at 1.8 (49 sources).
NEW_SITE = 1.5
SITE_SD = (math.log(0.12), 0.4)  # log-normal; published MFUs of alike set-ups differ by 5 to 15%
USUAL_MISFIT = (math.log(0.05), 0.4)
MISFIT_SD = (math.log(0.5), 0.4)
EXPERT_MISFIT = 2.5  # load, dispatchers and graphs differ between releases of one framework by 40%
MAX_ROWS = 60.0


Index = NDArray[np.int64]


@dataclass(frozen=True)
class StepTimesData(StepSurrogate):
    """Stacked outlines [row], and per row:

    Attributes:
        log_measured: logarithm of the measured seconds.
        straggler: logarithm of the median step over the noise-free one, under the device's usual variability.
        weight: how many independent rows it counts for, at most one.
        open_mean, open_sd: of the logarithm of the step over the one that the row's assumptions give; see `open_fields`.
        has_experts: 1 where the model has experts.
        centre: [row, knob] of `KNOBS`, on the link's scale: what deviations are counted from.
        all, generation, device, style, generation_style, framework, attention, norm, compile, graphs, tuning, workload, date,
        site: [row] index into `names` of that level; one past the last name where the row has none.
        years: of the software (`calibration.key.years_of`), by which what a member of the level of dates deviates is multiplied.
        names: level -> names of its members.
    """

    log_measured: NDArray[np.float64]
    straggler: NDArray[np.float64]
    weight: NDArray[np.float64]
    open_mean: NDArray[np.float64]
    open_sd: NDArray[np.float64]
    has_experts: NDArray[np.float64]
    centre: NDArray[np.float64]
    all: Index
    generation: Index
    device: Index
    style: Index
    generation_style: Index
    framework: Index
    attention: Index
    norm: Index
    compile: Index
    graphs: Index
    tuning: Index
    workload: Index
    date: Index
    site: Index
    years: NDArray[np.float64]
    names: Mapping[str, tuple[str, ...]]


def field_of(level: str) -> str:
    """Field of `StepTimesData` that holds the members of a level, or of the sites."""
    return level.name.lower() if isinstance(level, Level) else level


def step_times_data(
    stacked: StepSurrogate,
    measured_s: ArrayLike,
    straggler: ArrayLike,
    has_experts: Sequence[bool],
    settings: Sequence[CalibrationKey],
    sites: Sequence[str],
    open_fields: Sequence[tuple[OpenField, ...]] = (),
) -> StepTimesData:
    """Rows side by side; all sequences have one entry per row; without `open_fields` everything is stated."""
    own = [setting.members() for setting in settings]
    labels = {level: [one[level] for one in own] for level in LEVELS} | {"site": list(sites)}
    names = {
        level: tuple(sorted({label for label in found if label} | known_of(level))) for level, found in labels.items()
    }
    index = {
        level: np.array([names[level].index(x) if x else len(names[level]) for x in found], dtype=np.int64)
        for level, found in labels.items()
    }
    count = np.bincount(index["site"], minlength=len(names["site"]))[index["site"]]
    arrays: dict[str, Any] = parts_of_outline(stacked) | {field_of(level): value for level, value in index.items()}
    return StepTimesData(
        **arrays,
        log_measured=np.log(np.asarray(measured_s, dtype=float)),
        straggler=np.asarray(straggler, dtype=float),
        weight=np.minimum(1.0, MAX_ROWS / count),
        open_mean=np.array([sum(one.mean for one in own) for own in open_fields or ((),) * len(settings)]),
        open_sd=np.array([math.hypot(*(one.sd for one in own)) for own in open_fields or ((),) * len(settings)]),
        has_experts=np.asarray(has_experts, dtype=float),
        centre=np.tile([CENTRE[knob] for knob in KNOBS], (len(settings), 1)).astype(float),
        years=np.array([setting.years for setting in settings]),
        names=names,
    )


def known_of(level: str) -> set[str]:
    """Members of a level that something is known of before any run; they stay members where no row has them."""
    return {member for _, own, member in SHIFT if own == level}


EXPECTED, SCALE = "expected", "scale"  # names in the model, per row
N_SITE = "sites with rows"
# Fisher information, at scale 1, of the place of a site and of a row, which are Student-t, and of a row's log scale.
OF_SITE, OF_ROW = ((nu + 1.0) / (nu + 3.0) for nu in (SITE_DEGREES, DEGREES))
OF_SCALE = 2.0 * DEGREES / (DEGREES + 3.0)


@dataclass(frozen=True)
class StepTimesModel:
    """The model; see the module. It is fitted by `inference.cost_model.calibrate`.

    Attributes:
        terms: deviations that are fitted; others are zero.
    """

    name: ClassVar[str] = "step_times"

    terms: tuple[Assumed, ...] = TERMS

    def program(self, data: StepTimesData) -> None:
        """The NumPyro model of log step times; arrays of `data` are traced, names are static."""
        nothing = jnp.zeros(len(data.weight))
        summed = dict(zip(KNOBS, jnp.asarray(data.centre).T, strict=True)) | {MISFIT: nothing, STEP: nothing}
        for term in self._with_members(data):
            names = data.names[term.level]
            z = numpyro.sample(term.site, dist.Normal(jnp.zeros(len(names)), 1.0).to_event(1))
            value = numpyro.deterministic(
                f"{term.site} value", shift(term, names) + spread(term, names) * jnp.asarray(z)
            )
            index = jnp.asarray(getattr(data, field_of(term.level)))
            seen = jnp.append(jnp.asarray(value), 0.0)[index]  # the last for members that have no name
            per = jnp.asarray(data.years) if term.level == Level.DATE else 1.0
            summed[term.knob] = summed[term.knob] + per * seen
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
            EXPECTED,
            jnp.log(time_s) + summed[STEP] + jnp.asarray(data.straggler + data.open_mean) + jnp.asarray(site)[at],
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
