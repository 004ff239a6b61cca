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

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.variability.tree import Variability

from ..data.columns import Column
from . import (
    collectives_laws as laws,
    collectives_predict as predict,
    collectives_report as report,
    collectives_score as scoring,
)
from .base import Draws, Score
from .collectives_columns import COLUMNS
from .collectives_data import CollectivesData, from_frame

# Median and log standard deviation of log-normal spreads, all of log seconds.
CURVE_SCALE = (0.10, 0.5)  # a law of seven numbers misses measured curves by 5-25 %
STEP_SCALE = (0.07, 0.5)  # residuals change by 3-20 % per doubling of scale
DEVIATION_SCALE = ((0.02, 0.7), (0.15, 0.7))  # settings and libraries: little in a node, a lot across nodes
# Unevenness of cells around a smooth curve on eight GPUs: 1-20 %; larger by a factor 1.1 (0.8 to 1.5) per doubling of scale.
LOG_UNEVEN, UNEVEN_GROWTH = (np.log(0.05), 0.7), (0.1, 0.15)
# Repeats on eight GPUs agree to 0.1-10 %; worse by a factor 1.1 (0.7 to 1.6) per doubling.
LOG_NOISE, NOISE_GROWTH = (np.log(0.01), 1.0), (0.1, 0.2)
FABRIC_NOISE = 0.5  # fabrics differ by a factor 1.6 in both
TAIL_ABOVE = 1.2  # degrees of freedom exceed this, so that a slowdown has a mean
TAIL = (0.3, 0.8)  # log of what they are above: 2.5 in all, from all but Cauchy to 8
IN_PLACE = 0.05  # in place is a few per cent faster or slower
FIELD = (-8.0, 30.0)  # log seconds; flat, the curves' prior is given by their residuals


@dataclass(frozen=True)
class Collectives:
    """The model by the name "collectives".

    Attributes:
        law: dependence on size, one of `collectives_laws.LAWS`; chosen by the error on scales left out (see the study).
    """

    law: str = "power"

    name: ClassVar[str] = "collectives"
    columns: ClassVar[Sequence[Column]] = COLUMNS
    reported: ClassVar[tuple[str, ...]] = (
        "curve_scale",
        "step_scale",
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
        field = self._field(data, parameters)
        at_cell = _mix(field, data.curve, data)
        # The field is known at knots only: between them the law's own curvature is added.
        at_cell += self._law(parameters, fabric, data.where, data.log_bytes) - _mix(
            predict.at_knots(self.law, parameters, data), data.curve, data
        )
        if data.n_deviation:
            at_cell += self._deviation(data)
        n = len(data.fabrics)
        uneven = _sample("log_uneven", dist.Normal(*LOG_UNEVEN)) + _sample(
            "uneven_fabric", dist.Normal(0, FABRIC_NOISE).expand([n])
        )
        noise = _sample("log_noise", dist.Normal(*LOG_NOISE)) + _sample(
            "noise_fabric", dist.Normal(0, FABRIC_NOISE).expand([n])
        )
        growth = (
            _sample("uneven_growth", dist.Normal(*UNEVEN_GROWTH)),
            _sample("noise_growth", dist.Normal(*NOISE_GROWTH)),
        )
        tails = [self._tail(kind) for kind in ("uneven", "noise")]
        in_place = _sample("in_place", dist.Normal(0.0, IN_PLACE))
        scale = jnp.exp(uneven[fabric] + growth[0] * _doublings(data.n_gpus))
        numpyro.sample("log_s", dist.StudentT(tails[0], at_cell + in_place * data.in_place, scale), obs=data.log_s)
        if data.repeat.shape[0]:
            scale = jnp.exp(noise[data.repeat_fabric] + growth[1] * _doublings(data.repeat_gpus))
            centre = in_place * data.repeat_in_place
            numpyro.sample("repeat", dist.StudentT(tails[1], centre, scale), obs=data.repeat)

    def start(self, data: CollectivesData) -> dict[str, Any]:
        """Curves through the measured cells, everything else at its prior's median."""
        n = len(data.fabrics)
        first = {name: np.full(n, prior.median) for name, prior in laws.priors(self.law).items()}
        first |= {f"all_{name}": np.asarray(prior.median) for name, prior in laws.priors(self.law).items() if n > 1}
        return first | {
            "two_node": np.full(n, laws.TWO_NODE_SCALE),
            "field": predict.interpolated(data),
            "curve_scale": np.asarray(CURVE_SCALE[0]),
            "step_scale": np.asarray(STEP_SCALE[0]),
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

    def _field(self, data: CollectivesData, parameters: Mapping[str, Any]) -> Any:
        """Log seconds at the knots of every curve [curve, knot]; the residuals' walk is its prior."""
        n_curve, n_knot = data.curve_from.shape[0], data.knots.shape[0]
        field = _sample("field", dist.Normal(*FIELD).expand([n_curve, n_knot]).to_event(2))
        residual = jnp.asarray(numpyro.deterministic("residual", field - predict.at_knots(self.law, parameters, data)))
        first = (data.curve_from < 0)[:, None]
        step = residual - jnp.where(first, 0.0, residual[data.curve_from])
        curve_scale = _sample("curve_scale", dist.LogNormal(np.log(CURVE_SCALE[0]), CURVE_SCALE[1]))
        step_scale = _sample("step_scale", dist.LogNormal(np.log(STEP_SCALE[0]), STEP_SCALE[1]))
        scale = jnp.where(first[:, 0], curve_scale, step_scale * jnp.sqrt(data.curve_step))
        white = (step @ data.whiten.T) / scale[:, None]
        numpyro.factor("walk", -0.5 * jnp.sum(white**2) - n_knot * jnp.sum(jnp.log(scale)))
        return field

    def _deviation(self, data: CollectivesData) -> Any:
        """Log deviation of every cell's configuration from its fabric, the same at all scales of a regime."""
        scales = [
            _sample(f"deviation_scale_{i}", dist.LogNormal(np.log(median), sd))
            for i, (median, sd) in enumerate(DEVIATION_SCALE)
        ]
        scale = jnp.where(data.deviation_across == 1, scales[1], scales[0])
        white = _sample("deviation_white", dist.Normal().expand([data.n_deviation, data.knots.shape[0]]).to_event(2))
        deviation = scale[:, None] * (white @ jnp.linalg.inv(data.whiten).T)
        deviation = jnp.asarray(numpyro.deterministic("deviation", deviation))
        number = data.deviation_of[data.config, (data.n_nodes > 1).astype(int)]
        return jnp.where(number < 0, 0.0, _mix(deviation, number, data))

    @staticmethod
    def _tail(kind: str) -> Any:
        """Degrees of freedom."""
        above = _sample(f"{kind}_tail", dist.LogNormal(*TAIL))
        return jnp.asarray(numpyro.deterministic(f"{kind}_df", TAIL_ABOVE + above))

    def _law(self, parameters: Mapping[str, Any], fabric: Any, where: laws.Place, log_bytes: Any) -> Any:
        return laws.log_seconds(self.law, {k: v[fabric] for k, v in parameters.items()}, where, jnp.exp(log_bytes))


def _mix(table: Any, row: Any, data: CollectivesData) -> Any:
    """Values at every cell, between its two knots, of a table [row, knot]."""
    return table[row, data.knot] * (1.0 - data.weight) + table[row, data.knot + 1] * data.weight


def _sample(name: str, law: Any) -> Any:
    return jnp.asarray(numpyro.sample(name, law))


def _doublings(n_gpus: Any) -> Any:
    return jnp.log2(n_gpus / laws.REFERENCE_GPUS)
