"""Time of collectives by message size and scale, with its noise, on fabrics, sizes and scales measured and not.

    log seconds of a cell = law(fabric; bytes, scale) + residual(curve, x) [ + deviation(configuration, x) ] + unevenness
    log seconds of a repeat = that of its cell + in_place + heavy-tailed noise

The law (`laws`) is physical. The residual is smooth in size and walks at random along scale, one step per doubling: between two
measured scales it is interpolated, beyond them carried on, and either way it widens. It is integrated out (`collapsed`): what is
sampled are the law, held where it was measured (`laws.from_reference`), and the spreads. Unevenness is normal with a weight per
cell (`trust`), noise is Student-t, and both grow with scale. Sampling starts at the least-squares law (`least_squares`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array

from prism_jax.cost.measured import MeasuredTables
from prism_jax.system.hardware import Cluster
from prism_jax.variability.tree import Variability

from ...model import Draws, Model, Score
from . import collapsed as collapsed, laws as laws, predict as predict, report as report, score as scoring
from .columns import COLUMNS
from .cost import measured_collectives
from .curves import FittedCurve, fitted_curves
from .data import CollectivesData, from_frame
from .least_squares import fit_laws

# Normal priors, mean and standard deviation. Scales are log-normal, in units of log seconds.
SPREADS = {
    "log_curve_scale": (
        np.log(0.05),
        0.7,
    ),  # a law of seven numbers misses measured curves by 5-25 %, simulated ones by nothing
    "log_step_scale": (np.log(0.07), 0.5),  # residuals change by 3-20 % per doubling of scale
    "log_across_scale": (np.log(0.20), 0.5),  # and by 8-50 % from one node to several: other links, other algorithms
    "log_uneven": (np.log(0.02), 1.2),  # unevenness of cells around a smooth curve on eight GPUs: 0.2-20 %
    "uneven_growth": (0.1, 0.15),  # larger by a factor 1.1 (0.8 to 1.5) per doubling of scale
    "log_noise": (np.log(0.01), 1.0),  # repeats on eight GPUs agree to 0.1-10 %
    "noise_growth": (0.1, 0.2),  # worse by a factor 1.1 (0.7 to 1.6) per doubling
    "noise_tail": (0.3, 0.8),  # log of the degrees of freedom above `TAIL_ABOVE`: 2.5 in all, from all but Cauchy to 8
    "in_place": (0.0, 0.05),  # in place is a few per cent faster or slower
}
RESTLESS = 0.5  # some sizes are several times as restless as others: those at which protocols and algorithms change
DEVIATIONS = {  # settings and libraries: little in a node, a lot across nodes
    "log_deviation_in_node": (np.log(0.02), 0.7),
    "log_deviation_across": (np.log(0.15), 0.7),
}
TAIL_ABOVE = 1.2  # degrees of freedom exceed this, so that a slowdown has a mean
FLAT = 100.0  # no prior: that of the law is on its parameters


@dataclass(frozen=True)
class Collectives(Model[CollectivesData]):
    """The model by the name "collectives".

    Attributes:
        size_law: dependence on size, one of `collectives_laws.LAWS`; chosen by the error on scales left out (see the study).
    """

    size_law: str = "power"

    name = "collectives"
    holdout_method = "nuts"
    columns = COLUMNS
    reported = (
        "curve_scale",
        "step_scale",
        "across_scale",
        "log_uneven",
        "uneven_growth",
        "log_noise",
        "noise_growth",
        "in_place",
    )
    target_accept = 0.95  # latency hides behind the law's middle part: narrow places need short steps

    def prepare(self, frame: pd.DataFrame) -> CollectivesData:
        """Cells, curves and knots."""
        return from_frame(frame)

    def program(self, data: CollectivesData) -> None:
        """Priors, and the likelihood of cells, residuals integrated out, and of repeats."""
        fabric = data.curve_fabric[data.curve]
        parameters = self._parameters(data)
        spread = _normals("spreads", SPREADS)
        profile = _profile(data)
        centre = laws.log_seconds(
            self.size_law,
            {name: value[fabric] for name, value in parameters.items()},
            data.where,
            jnp.exp(data.log_bytes),
        )
        if data.n_deviation:
            centre += _deviation(data)
        off = data.log_s - centre - spread["in_place"] * data.in_place
        levels = {kind: _level(kind, spread, len(data.fabrics)) for kind in ("uneven", "noise")}
        at_cell = {kind: _scale(kind, levels, spread, fabric, data.n_gpus) for kind in levels}
        variance = predict.variance_of_cells(data, **at_cell, profile=profile, xp=jnp)
        scales = {
            name: jnp.asarray(numpyro.deterministic(name, jnp.exp(spread[f"log_{name}"])))
            for name in ("curve_scale", "step_scale", "across_scale")
        }
        scale = predict.scale_of_curves(data, scales, jnp)
        numpyro.factor("cells", collapsed.log_likelihood(data, off, variance, scale, profile))
        df = numpyro.deterministic("noise_df", TAIL_ABOVE + jnp.exp(spread["noise_tail"]))
        if data.repeat.shape[0]:
            noise = jnp.exp(_scale("noise", levels, spread, data.repeat_fabric, data.repeat_gpus))
            law = dist.StudentT(df, spread["in_place"] * data.repeat_in_place, noise)
            numpyro.sample("repeat", law, obs=data.repeat)

    def start(self, data: CollectivesData) -> dict[str, Any]:
        """The least-squares law, and everything else at its prior's median but for what that law leaves."""
        n = len(data.fabrics)
        found = fit_laws(self.size_law, data)
        first: dict[str, Any] = {"held": np.stack([one.held for one in found])}
        if n > 1:
            first["everywhere"] = np.array([prior.median for prior in laws.priors(self.size_law).values()])
            first |= {f"{kind}_level": np.full(n, SPREADS[f"log_{kind}"][0]) for kind in ("uneven", "noise")}
        if len(data.two_nodes):
            first["two_node_of"] = np.full(len(data.two_nodes), laws.TWO_NODE_SCALE)
        if data.n_deviation:
            first["deviation_white"] = np.zeros((data.n_deviation, data.coarse.shape[1]))
            first["deviation_spreads"] = np.array([mean for mean, _ in DEVIATIONS.values()])
        return first | {
            "spreads": np.array([mean for mean, _ in SPREADS.values()]),
            "restless": np.zeros(data.coarse.shape[1]),
        }

    def complete(self, data: CollectivesData, draws: Draws, key: Array) -> dict[str, np.ndarray]:
        """The residuals [draw, curve, knot], which the program integrates out."""
        return predict.drawn_residuals(
            self.size_law, data, draws, np.random.default_rng(np.asarray(jax.random.key_data(key)))
        )

    def judged(self, data: CollectivesData, draws: Draws) -> Mapping[str, np.ndarray]:
        """Log latency and bandwidth at every measured scale, and the spreads, [chain, draw, ...]."""
        return report.judged(self.size_law, data, draws)

    def describe(self, data: CollectivesData, draws: Draws) -> dict[str, Any]:
        """Latency, bandwidth and noise by fabric and scale, with 90 % intervals."""
        return report.describe(self.size_law, data, draws)

    def curves(self, data: CollectivesData, draws: Draws) -> list[FittedCurve]:
        """Bus bandwidth by message size of every measured curve."""
        return fitted_curves(self.size_law, data, draws)

    def variability(self, data: CollectivesData, draw: Mapping[str, np.ndarray]) -> Variability:
        """The noise of repeats at the largest measured scale of every operation, as the `call` factor of its class."""
        return report.variability(data, draw)

    def measured_cost(
        self, data: CollectivesData, draws: Draws, cluster: Cluster, dtype: str, n_draw: int, key: Array
    ) -> MeasuredTables:
        """Seconds over those of the cluster's own network."""
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
        return measured_collectives(self.size_law, data, draws, cluster, n_draw, rng)

    def score(
        self, data: CollectivesData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[Score]:
        """Errors of the median prediction by group, beside in-sample fits and the nearest measured scale."""
        return scoring.score(self.size_law, data, draws, left_out, column, key)

    def seconds(self, data: CollectivesData, draws: Draws, *, key: Array, **query: Any) -> np.ndarray:
        """Seconds [draw] of one collective; see `collectives_predict.seconds`."""
        return predict.seconds(self.size_law, data, draws, key=key, **query)

    def _parameters(self, data: CollectivesData) -> dict[str, Any]:
        """The law's parameters, [fabric]: around a common median if there are several fabrics."""
        n_fabric, known = len(data.fabrics), laws.priors(self.size_law)
        held = _sample("held", dist.Normal(0.0, FLAT).expand([n_fabric, len(known)]).to_event(2))
        out = laws.from_reference(dict(zip(known, held.T, strict=True)), data.reference)
        centre, spread = (
            np.array([prior.median for prior in known.values()]),
            [np.hypot(p.sd, p.between) for p in known.values()],
        )
        if n_fabric > 1:
            everywhere = dist.Normal(centre, np.array([prior.sd for prior in known.values()]))
            centre, spread = _sample("everywhere", everywhere.to_event(1)), [prior.between for prior in known.values()]
            for name, value in zip(known, centre, strict=True):
                numpyro.deterministic(f"all_{name}", value)
        each = jnp.stack([out[name] for name in known], axis=1)
        numpyro.factor("law", jnp.sum(dist.Normal(centre, np.array(spread)).log_prob(each)))
        for name in known:
            numpyro.deterministic(name, out[name])
        two_node = jnp.zeros(n_fabric)
        if data.two_nodes.shape[0]:
            of = _sample(
                "two_node_of", dist.HalfCauchy(laws.TWO_NODE_SCALE).expand([data.two_nodes.shape[0]]).to_event(1)
            )
            two_node = two_node.at[data.two_nodes].set(of)
        return out | {"two_node": jnp.asarray(numpyro.deterministic("two_node", two_node))}


def _profile(data: CollectivesData) -> Any:
    """How much more restless than others each size is, a log factor at the knots [knot]."""
    restless = _sample("restless", dist.Normal(0.0, RESTLESS).expand([data.coarse.shape[1]]).to_event(1))
    profile = data.coarse @ (restless - jnp.mean(restless))  # levels have sites of their own
    return jnp.asarray(numpyro.deterministic("profile", profile))


def _deviation(data: CollectivesData) -> Any:
    """Log deviation of every cell's configuration from its fabric, the same at all scales of a regime."""
    scales = jnp.exp(jnp.stack(list(_normals("deviation_spreads", DEVIATIONS).values())))
    white = _sample("deviation_white", dist.Normal().expand([data.n_deviation, data.coarse.shape[1]]).to_event(2))
    deviation = scales[data.deviation_across][:, None] * (white @ data.coarse.T)
    deviation = jnp.asarray(numpyro.deterministic("deviation", deviation))
    number = predict.deviation_number(data)
    return jnp.where(number < 0, 0.0, predict.between(deviation, number, data))


def _level(kind: str, spread: Mapping[str, Any], n_fabric: int) -> Any:
    """Log scale of unevenness or noise on the reference number of GPUs [fabric]."""
    centre = spread[f"log_{kind}"]
    if n_fabric > 1:
        return _sample(f"{kind}_level", dist.Normal(centre, predict.FABRIC_NOISE).expand([n_fabric]).to_event(1))
    return jnp.asarray(numpyro.deterministic(f"{kind}_level", centre[None]))


def _scale(kind: str, levels: Mapping[str, Any], spread: Mapping[str, Any], fabric: Any, n_gpus: Any) -> Any:
    """The same of every row of `fabric` and `n_gpus`; it grows with the doublings of scale."""
    return levels[kind][fabric] + spread[f"{kind}_growth"] * jnp.log2(n_gpus / laws.REFERENCE_GPUS)


def _normals(site: str, priors: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Independent normal values by name, sampled together, which compiles faster than one by one."""
    mean, sd = np.array(list(priors.values())).T
    values = _sample(site, dist.Normal(mean, sd).to_event(1))
    return {name: jnp.asarray(numpyro.deterministic(name, values[i])) for i, name in enumerate(priors)}


def _sample(name: str, law: Any) -> Any:
    return jnp.asarray(numpyro.sample(name, law))
