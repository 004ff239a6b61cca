"""Time of collectives by message size and scale, with its noise, on fabrics, sizes and scales measured and not.

    log seconds of a cell = field(curve, x) [ + deviation(configuration, x) ] + heavy-tailed unevenness
    log seconds of a repeat = that of its cell + in_place + heavy-tailed noise
    field = law(fabric; bytes, scale) + residual(curve, x)

The law (`collectives_laws`) is physical. The residual is smooth in size and walks at random along scale, one step per doubling:
between two measured scales it is interpolated, beyond them carried on, and either way it widens. Unevenness and noise are
Student-t and grow with scale. The field itself is what is sampled, not the residual: measurements fix it, whatever the law's
parameters are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from jax.scipy.linalg import solve_triangular

from prism_jax.variability.tree import Variability

from ...data.columns import Column
from ...model import Draws, Score
from . import laws as laws, predict as predict, report as report, score as scoring
from .columns import COLUMNS
from .data import CollectivesData, from_frame

# Median and log standard deviation of log-normal spreads, all of log seconds.
CURVE_SCALE = (0.10, 0.5)  # a law of seven numbers misses measured curves by 5-25 %
PROFILE = 0.7  # some sizes are several times as restless as others: those at which protocols and algorithms change
STEP_SCALE = (0.07, 0.5)  # residuals change by 3-20 % per doubling of scale
ACROSS_SCALE = (0.20, 0.5)  # and by 8-50 % from one node to several: other links, other algorithms
DEVIATION_SCALE = ((0.02, 0.7), (0.15, 0.7))  # settings and libraries: little in a node, a lot across nodes
# Unevenness of cells around a smooth curve on eight GPUs: 1-20 %; larger by a factor 1.1 (0.8 to 1.5) per doubling of scale.
LOG_UNEVEN, UNEVEN_GROWTH = (np.log(0.05), 0.7), (0.1, 0.15)
# Repeats on eight GPUs agree to 0.1-10 %; worse by a factor 1.1 (0.7 to 1.6) per doubling.
LOG_NOISE, NOISE_GROWTH = (np.log(0.01), 1.0), (0.1, 0.2)
TAIL_ABOVE = 1.2  # degrees of freedom exceed this, so that a slowdown has a mean
TAIL = (0.3, 0.8)  # log of what they are above: 2.5 in all, from all but Cauchy to 8
IN_PLACE = 0.05  # in place is a few per cent faster or slower
FLAT = 100.0  # of log seconds: no prior, that of curves and deviations is given by their smoothness


@dataclass(frozen=True)
class Collectives:
    """The model by the name "collectives".

    Attributes:
        law: dependence on size, one of `collectives_laws.LAWS`; chosen by the error on scales left out (see the study).
    """

    law: str = "power"

    name: ClassVar[str] = "collectives"
    default_method: ClassVar[str] = "nuts"
    holdout_method: ClassVar[str] = "nuts"
    columns: ClassVar[Sequence[Column]] = COLUMNS
    reported: ClassVar[tuple[str, ...]] = (
        "curve_scale",
        "step_scale",
        "across_scale",
        "log_uneven",
        "uneven_growth",
        "log_noise",
        "noise_growth",
        "in_place",
    )
    holdout: ClassVar[str] = "folds"

    def prepare(self, frame: pd.DataFrame) -> CollectivesData:
        """Cells, curves and knots."""
        return from_frame(frame)

    def program(self, data: CollectivesData) -> None:
        """Priors, the curves' random walk along scale, and the likelihood of cells and of repeats."""
        fabric = data.curve_fabric[data.curve]
        parameters = self._parameters(len(data.fabrics))
        profile = _sample("profile_scale", dist.HalfNormal(PROFILE)) * (
            data.smooth @ _sample("profile_white", dist.Normal().expand([data.knots.shape[0]]).to_event(1))
        )
        profile = jnp.asarray(
            numpyro.deterministic("profile", profile - jnp.mean(profile))
        )  # levels have sites of their own
        at_cell = laws.log_seconds(
            self.law, {name: value[fabric] for name, value in parameters.items()}, data.where, jnp.exp(data.log_bytes)
        ) + _mix(self._residual(data, parameters, profile), data.curve, data)
        if data.n_deviation:
            at_cell += self._deviation(data, profile)
        in_place = _sample("in_place", dist.Normal(0.0, IN_PLACE))
        level, growth, df = _noise("uneven", LOG_UNEVEN, UNEVEN_GROWTH, len(data.fabrics))
        restless = _mix(profile[None], jnp.zeros_like(data.curve), data)
        scale = jnp.exp(level[fabric] + growth * _doublings(data.n_gpus) + restless)
        numpyro.sample("log_s", dist.StudentT(df, at_cell + in_place * data.in_place, scale), obs=data.log_s)
        level, growth, df = _noise("noise", LOG_NOISE, NOISE_GROWTH, len(data.fabrics))
        if data.repeat.shape[0]:
            scale = jnp.exp(level[data.repeat_fabric] + growth * _doublings(data.repeat_gpus))
            numpyro.sample("repeat", dist.StudentT(df, in_place * data.repeat_in_place, scale), obs=data.repeat)

    def start(self, data: CollectivesData) -> dict[str, Any]:
        """Curves through the measured cells, everything else at its prior's median."""
        n = len(data.fabrics)
        first = {name: np.full(n, prior.median) for name, prior in laws.priors(self.law).items()}
        first |= {f"all_{name}": np.asarray(prior.median) for name, prior in laws.priors(self.law).items() if n > 1}
        if n > 1:
            first |= {"uneven_level": np.full(n, LOG_UNEVEN[0]), "noise_level": np.full(n, LOG_NOISE[0])}
        field = predict.interpolated(data)
        if data.n_deviation:
            first["deviation"] = predict.typical_deviation(data, field)
        return first | {
            "two_node": np.full(n, laws.TWO_NODE_SCALE),
            "field": field * data.observed,
            "curve_scale": np.asarray(CURVE_SCALE[0]),
            "step_scale": np.asarray(STEP_SCALE[0]),
            "across_scale": np.asarray(ACROSS_SCALE[0]),
            "log_uneven": np.asarray(LOG_UNEVEN[0]),
            "log_noise": np.asarray(LOG_NOISE[0]),
        }

    def describe(self, data: CollectivesData, draws: Draws) -> dict[str, Any]:
        """Latency, bandwidth and noise by fabric and scale, with 90 % intervals."""
        return report.describe(self.law, data, draws)

    def variability(self, data: CollectivesData, draw: Mapping[str, np.ndarray]) -> Variability:
        """The noise of repeats at the largest measured scale of every operation, as the `call` factor of its class."""
        return report.variability(data, draw)

    def score(
        self, data: CollectivesData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[Score]:
        """Errors of the median prediction by group, beside in-sample fits and the nearest measured scale."""
        return scoring.score(self.law, data, draws, left_out, column, key)

    def seconds(self, data: CollectivesData, draws: Draws, *, key: Array, **query: Any) -> np.ndarray:
        """Seconds [draw] of one collective; see `collectives_predict.seconds`."""
        return predict.seconds(self.law, data, draws, key=key, **query)

    def _parameters(self, n_fabric: int) -> dict[str, Any]:
        """The law's parameters, [fabric]: around a common median if there are several fabrics."""
        out = {}
        for name, prior in laws.priors(self.law).items():
            centre, spread = prior.median, float(np.hypot(prior.sd, prior.between))
            if n_fabric > 1:
                centre, spread = _sample(f"all_{name}", dist.Normal(prior.median, prior.sd)), prior.between
            out[name] = _sample(name, dist.Normal(centre, spread).expand([n_fabric]))
        out["two_node"] = _sample("two_node", dist.HalfCauchy(laws.TWO_NODE_SCALE).expand([n_fabric]))
        return out

    def _residual(self, data: CollectivesData, parameters: Mapping[str, Any], profile: Any) -> Any:
        """Residuals of the law at the knots of every curve [curve, knot]; a walk along scale is their prior.

        What is sampled is the curve itself where it was measured, since that is what measurements fix; elsewhere the
        innovation of its residual, given the knots measured and the curve one scale below.
        """
        curve_scale, step_scale, across_scale = (
            _sample(name, dist.LogNormal(np.log(median), sd))
            for name, (median, sd) in (
                ("curve_scale", CURVE_SCALE),
                ("step_scale", STEP_SCALE),
                ("across_scale", ACROSS_SCALE),
            )
        )
        first = data.curve_from < 0
        walked = jnp.sqrt(step_scale**2 * data.curve_step + across_scale**2 * data.curve_across)
        scale = jnp.where(first, curve_scale, walked)[:, None] * jnp.exp(profile)
        shape = [data.curve_from.shape[0], data.knots.shape[0]]
        field = _sample("field", dist.Normal(0.0, FLAT).expand(shape).to_event(2))
        law = predict.at_knots(self.law, parameters, data)

        def walk(before: Any, curve: Any) -> tuple[Any, Any]:
            field, law, scale, observed, first, whiten, fill, spread = curve
            before = jnp.where(first, 0.0, before)
            known = observed * (field - law - before) / scale
            step = known + (1.0 - observed) * (fill @ known + spread @ ((1.0 - observed) * field))
            after = before + scale * step
            return after, (after, whiten @ known)

        inputs = (field, law, scale, data.observed, first, data.whiten, data.fill, data.spread)
        _, (residual, white) = jax.lax.scan(walk, jnp.zeros(shape[1]), inputs)
        innovation = jnp.sum(((1.0 - data.observed) * field) ** 2)
        numpyro.factor("walk", -0.5 * (jnp.sum(white**2) + innovation) - jnp.sum(data.observed * jnp.log(scale)))
        return jnp.asarray(numpyro.deterministic("residual", residual))

    def _deviation(self, data: CollectivesData, profile: Any) -> Any:
        """Log deviation of every cell's configuration from its fabric, the same at all scales of a regime."""
        scales = [
            _sample(f"deviation_scale_{i}", dist.LogNormal(np.log(median), sd))
            for i, (median, sd) in enumerate(DEVIATION_SCALE)
        ]
        scale = jnp.where(data.deviation_across == 1, scales[1], scales[0])
        shape = [data.n_deviation, data.knots.shape[0]]
        deviation = _sample("deviation", dist.Normal(0.0, FLAT).expand(shape).to_event(2))
        numpyro.factor("configurations", _smooth_density(deviation, scale, data.smooth, profile))
        number = data.deviation_of[data.config, (data.n_nodes > 1).astype(int)]
        return jnp.where(number < 0, 0.0, _mix(deviation, number, data))


def _noise(kind: str, level: tuple[float, float], growth: tuple[float, float], n_fabric: int) -> tuple[Any, Any, Any]:
    """Log scale on the reference number of GPUs [fabric], its growth per doubling, and degrees of freedom."""
    centre = _sample(f"log_{kind}", dist.Normal(*level))
    if n_fabric > 1:
        of_fabric = _sample(f"{kind}_level", dist.Normal(centre, predict.FABRIC_NOISE).expand([n_fabric]))
    else:
        of_fabric = jnp.asarray(numpyro.deterministic(f"{kind}_level", centre[None]))
    above = _sample(f"{kind}_tail", dist.LogNormal(*TAIL))
    df = jnp.asarray(numpyro.deterministic(f"{kind}_df", TAIL_ABOVE + above))
    return of_fabric, _sample(f"{kind}_growth", dist.Normal(*growth)), df


def _smooth_density(values: Any, scale: Any, smooth: Any, profile: Any) -> Any:
    """Log density, but for a constant, of rows of smooth normal values at the knots; one scale per row."""
    white = solve_triangular(smooth, (values * jnp.exp(-profile)).T, lower=True) / scale
    log_volume = values.shape[1] * jnp.sum(jnp.log(scale)) + values.shape[0] * jnp.sum(
        profile + jnp.log(jnp.diagonal(smooth))
    )
    return -0.5 * jnp.sum(white**2) - log_volume


def _mix(table: Any, row: Any, data: CollectivesData) -> Any:
    """Values at every cell, between its two knots, of a table [row, knot]."""
    return table[row, data.knot] * (1.0 - data.weight) + table[row, data.knot + 1] * data.weight


def _sample(name: str, law: Any) -> Any:
    return jnp.asarray(numpyro.sample(name, law))


def _doublings(n_gpus: Any) -> Any:
    return jnp.log2(n_gpus / laws.REFERENCE_GPUS)
