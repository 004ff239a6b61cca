"""Time of collectives by message size and scale, with its noise, on fabrics, sizes and scales measured and not.

    log seconds of a cell = law(fabric; bytes, scale) + residual(curve, x) [ + deviation(configuration, x) ] + unevenness
    log seconds of a repeat = that of its cell + in_place + heavy-tailed noise

The law (`laws`) is physical. The residual is smooth in size and walks at random along scale, one step per doubling: between two
measured scales it is interpolated, beyond them carried on, and either way it widens. It is integrated out (`collapsed`): what is
sampled are the law, held where it was measured (`laws.from_reference`), and the spreads. Unevenness is normal with a weight per
cell (`trust`), noise is Student-t, and both grow with scale. Sampling starts at the least-squares law (`least_squares`).
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

from prism_jax.variability.tree import Variability

from ...data.columns import Column
from ...model import Draws, Score
from . import collapsed as collapsed, laws as laws, predict as predict, report as report, score as scoring
from .columns import COLUMNS
from .data import CollectivesData, from_frame
from .least_squares import fit_laws

# Median and log standard deviation of log-normal spreads, all of log seconds.
CURVE_SCALE = (0.05, 1.0)  # a law of seven numbers misses measured curves by 5-25 %, simulated ones by nothing
PROFILE = 0.7  # some sizes are several times as restless as others: those at which protocols and algorithms change
STEP_SCALE = (0.07, 0.5)  # residuals change by 3-20 % per doubling of scale
ACROSS_SCALE = (0.20, 0.5)  # and by 8-50 % from one node to several: other links, other algorithms
DEVIATION_SCALE = ((0.02, 0.7), (0.15, 0.7))  # settings and libraries: little in a node, a lot across nodes
# Unevenness of cells around a smooth curve on eight GPUs: 0.2-20 %; larger by a factor 1.1 (0.8 to 1.5) per doubling of scale.
LOG_UNEVEN, UNEVEN_GROWTH = (np.log(0.02), 1.2), (0.1, 0.15)
# Repeats on eight GPUs agree to 0.1-10 %; worse by a factor 1.1 (0.7 to 1.6) per doubling.
LOG_NOISE, NOISE_GROWTH = (np.log(0.01), 1.0), (0.1, 0.2)
TAIL_ABOVE = 1.2  # degrees of freedom exceed this, so that a slowdown has a mean
TAIL = (0.3, 0.8)  # log of what they are above: 2.5 in all, from all but Cauchy to 8
IN_PLACE = 0.05  # in place is a few per cent faster or slower
FLAT = 100.0  # no prior: that of the law is on its parameters


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
        """Priors, and the likelihood of cells, residuals integrated out, and of repeats."""
        fabric = data.curve_fabric[data.curve]
        parameters = self._parameters(data)
        white = _sample("profile_white", dist.Normal().expand([data.coarse.shape[1]]).to_event(1))
        profile = _sample("profile_scale", dist.HalfNormal(PROFILE)) * (data.coarse @ white)
        profile = jnp.asarray(
            numpyro.deterministic("profile", profile - jnp.mean(profile))
        )  # levels have sites of their own
        centre = laws.log_seconds(
            self.law, {name: value[fabric] for name, value in parameters.items()}, data.where, jnp.exp(data.log_bytes)
        )
        if data.n_deviation:
            centre += _deviation(data)
        in_place = _sample("in_place", dist.Normal(0.0, IN_PLACE))
        off = data.log_s - centre - in_place * data.in_place
        level, growth = _level("uneven", LOG_UNEVEN, UNEVEN_GROWTH, len(data.fabrics))
        restless = predict.between(profile[None], jnp.zeros_like(data.curve), data)
        uneven = jnp.exp(level[fabric] + growth * _doublings(data.n_gpus) + restless)
        scales = {
            name: _sample(name, dist.LogNormal(np.log(median), sd))
            for name, (median, sd) in {
                "curve_scale": CURVE_SCALE,
                "step_scale": STEP_SCALE,
                "across_scale": ACROSS_SCALE,
            }.items()
        }
        scale = predict.scale_of_curves(data, scales, jnp)
        numpyro.factor("cells", collapsed.log_likelihood(data, off, uneven**2 / data.trust, scale, profile))
        level, growth = _level("noise", LOG_NOISE, NOISE_GROWTH, len(data.fabrics))
        df = numpyro.deterministic("noise_df", TAIL_ABOVE + _sample("noise_tail", dist.LogNormal(*TAIL)))
        if data.repeat.shape[0]:
            noise = jnp.exp(level[data.repeat_fabric] + growth * _doublings(data.repeat_gpus))
            numpyro.sample("repeat", dist.StudentT(df, in_place * data.repeat_in_place, noise), obs=data.repeat)

    def start(self, data: CollectivesData) -> dict[str, Any]:
        """The least-squares law, and everything else at its prior's median but for what that law leaves."""
        n = len(data.fabrics)
        found = fit_laws(self.law, data)
        first: dict[str, Any] = {"held": np.stack([one.held for one in found])}
        first |= {f"all_{name}": np.asarray(prior.median) for name, prior in laws.priors(self.law).items() if n > 1}
        if n > 1:
            first |= {"uneven_level": np.full(n, LOG_UNEVEN[0]), "noise_level": np.full(n, LOG_NOISE[0])}
        if len(data.two_nodes):
            first["two_node_of"] = np.full(len(data.two_nodes), laws.TWO_NODE_SCALE)
        if data.n_deviation:
            first["deviation_white"] = np.zeros((data.n_deviation, data.coarse.shape[1]))
        return first | {
            "profile_white": np.zeros(data.coarse.shape[1]),
            "profile_scale": np.asarray(0.5 * PROFILE),
            "curve_scale": np.asarray(CURVE_SCALE[0]),
            "step_scale": np.asarray(STEP_SCALE[0]),
            "across_scale": np.asarray(ACROSS_SCALE[0]),
            "log_uneven": np.asarray(LOG_UNEVEN[0]),
            "log_noise": np.asarray(LOG_NOISE[0]),
        }

    def complete(self, data: CollectivesData, draws: Draws, key: Array) -> dict[str, np.ndarray]:
        """The residuals [draw, curve, knot], which the program integrates out."""
        return predict.drawn_residuals(self.law, data, draws, np.random.default_rng(np.asarray(jax.random.key_data(key))))

    def judged(self, data: CollectivesData, draws: Draws) -> Mapping[str, np.ndarray]:
        """Log latency and bandwidth at every measured scale, and the spreads, [chain, draw, ...]."""
        return report.judged(self.law, data, draws)

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

    def _parameters(self, data: CollectivesData) -> dict[str, Any]:
        """The law's parameters, [fabric]: around a common median if there are several fabrics."""
        n_fabric, known = len(data.fabrics), laws.priors(self.law)
        held = _sample("held", dist.Normal(0.0, FLAT).expand([n_fabric, len(known)]).to_event(2))
        out = laws.from_reference(dict(zip(known, held.T, strict=True)), data.reference)
        for name, prior in known.items():
            centre, spread = prior.median, float(np.hypot(prior.sd, prior.between))
            if n_fabric > 1:
                centre, spread = _sample(f"all_{name}", dist.Normal(prior.median, prior.sd)), prior.between
            numpyro.factor(f"prior_{name}", jnp.sum(dist.Normal(centre, spread).log_prob(out[name])))
            numpyro.deterministic(name, out[name])
        two_node = jnp.zeros(n_fabric)
        if data.two_nodes.shape[0]:
            of = _sample("two_node_of", dist.HalfCauchy(laws.TWO_NODE_SCALE).expand([data.two_nodes.shape[0]]).to_event(1))
            two_node = two_node.at[data.two_nodes].set(of)
        return out | {"two_node": jnp.asarray(numpyro.deterministic("two_node", two_node))}


def _deviation(data: CollectivesData) -> Any:
    """Log deviation of every cell's configuration from its fabric, the same at all scales of a regime."""
    scales = [
        _sample(f"deviation_scale_{i}", dist.LogNormal(np.log(median), sd))
        for i, (median, sd) in enumerate(DEVIATION_SCALE)
    ]
    scale = jnp.where(data.deviation_across == 1, scales[1], scales[0])[:, None]
    white = _sample("deviation_white", dist.Normal().expand([data.n_deviation, data.coarse.shape[1]]).to_event(2))
    deviation = jnp.asarray(numpyro.deterministic("deviation", scale * white @ data.coarse.T))
    number = predict.deviation_number(data)
    return jnp.where(number < 0, 0.0, predict.between(deviation, number, data))


def _level(kind: str, level: tuple[float, float], growth: tuple[float, float], n_fabric: int) -> tuple[Any, Any]:
    """Log scale on the reference number of GPUs [fabric], and its growth per doubling."""
    centre = _sample(f"log_{kind}", dist.Normal(*level))
    if n_fabric > 1:
        of_fabric = _sample(f"{kind}_level", dist.Normal(centre, predict.FABRIC_NOISE).expand([n_fabric]))
    else:
        of_fabric = jnp.asarray(numpyro.deterministic(f"{kind}_level", centre[None]))
    return of_fabric, _sample(f"{kind}_growth", dist.Normal(*growth))


def _sample(name: str, law: Any) -> Any:
    return jnp.asarray(numpyro.sample(name, law))


def _doublings(n_gpus: Any) -> Any:
    return jnp.log2(n_gpus / laws.REFERENCE_GPUS)
