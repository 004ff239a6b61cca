"""Time of collectives by message size and scale, with its noise, on fabrics, sizes and scales measured and not.

    log seconds of a cell = law(fabric; bytes, scale) + residual(curve, x) [ + deviation(configuration, x) ] + unevenness
    log seconds of a repeat = that of its cell + in_place + heavy-tailed noise

The law (`laws`) is physical. The residual is smooth in size and walks at random along scale, one step per doubling: between two
measured scales it is interpolated, beyond them carried on, and either way it widens. It is integrated out (`predict`): what is
sampled are the law, held where it was measured (`laws.from_reference`), and the spreads. Unevenness is normal with a weight per
cell (`trust`), noise is Student-t, and both grow with scale. Sampling starts at the least-squares law (`least_squares`).

Scores of groups that were left out are means over rows of |predicted / measured - 1| (MAPE), with the median of the prediction.
`mape_alpha_beta` and `mape_sigmoid` are *in-sample*: two and four parameters fitted by least squares of log seconds to each
left-out curve (one configuration, scale and direction), on the very rows on which the error is taken. `mape_nearest` is the
trivial prediction, the measured curve at the nearest scale that was not left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from scipy.optimize import least_squares

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import FitError
from prism_jax.cost.efficiency import MeasuredTables
from prism_jax.fits.report import CollectiveCurve, Verdict
from prism_jax.system.hardware import Cluster
from prism_jax.variability.tree import Variability

from ..engine.model import Draws, GroupScore, Model
from ..engine.program import generator
from . import laws, predict, report
from .data import COLUMNS, CollectivesData, floats, from_frame, known_op, named, plain_rows
from .laws import steps
from .least_squares import SHORT_BYTES, are_two_numbers_enough, draws_and_verdict, fit_laws
from .predict import FabricPlace, find_fabric, log_centre, noise
from .report import fitted_curves, measured_collectives

MIN_SIZES = 6  # of a curve, for four parameters to be an in-sample fit and not an interpolation


def _score(
    name: str, rows: pd.DataFrame, law: str, data: CollectivesData, draws: Draws, rng: np.random.Generator
) -> GroupScore:
    keys = ["op", "fabric", "of_config", "n_gpus", "n_nodes"]
    parts = [curve_figures(curve, law, data, draws, rng) for _, curve in rows.groupby(keys, sort=True)]
    every = pd.concat(parts)
    measured, low, high = (floats(every, name) for name in ("measured", "low", "high"))
    error = floats(every, "predicted") - measured
    relative = np.abs(np.expm1(error))
    extra = {"mape": float(relative.mean()), "median_ape": float(np.median(relative))}
    extra["log_error"] = float(np.abs(error).mean())
    extra |= {f"mape_{fit}": _mape(every, fit) for fit in ("alpha_beta", "sigmoid", "nearest")}
    extra["width_90"] = float(np.median(np.expm1(high - low)))
    inside = (measured >= low) & (measured <= high)
    return GroupScore(
        name,
        ks=_distance_from_uniform(floats(every, "pit")),
        coverage_90=float(inside.mean()),
        extra=extra | {"n_rows": len(every)},
    )


def curve_figures(
    rows: pd.DataFrame, law: str, data: CollectivesData, draws: Draws, rng: np.random.Generator
) -> pd.DataFrame:
    """Measured, predicted (median, 5%, 95%) and simply fitted log seconds, per row of one configuration at one scale."""
    first = rows.iloc[0]
    place = FabricPlace(
        str(first["op"]),
        float(first["n_gpus"]),
        float(first["n_nodes"]),
        _position(data.fabrics, first["fabric"]),
        _position(data.configs, first["of_config"]),
    )
    size, measured = floats(rows, "message_bytes"), np.log(floats(rows, "duration_s"))
    drawn = log_centre(law, data, draws, place, size, rng)
    drawn += draws["in_place"][:, None] * floats(rows, "in_place") + noise(data, draws, place, size, rng)
    low, centre, high = np.quantile(drawn, [0.05, 0.5, 0.95], axis=0)
    table = pd.DataFrame({"measured": measured, "predicted": centre, "low": low, "high": high}, index=rows.index)
    table["pit"] = (drawn <= measured).mean(axis=0)
    table["nearest"] = nearest_scale(data, place, size)
    for fit in (alpha_beta, sigmoid):
        table[fit.__name__] = np.nan
        for side in (0.0, 1.0):
            here = floats(rows, "in_place") == side
            if len(np.unique(size[here])) >= MIN_SIZES:
                bus = 2.0 * (place.n_gpus - 1.0) / place.n_gpus
                table.loc[here, fit.__name__] = fit(size[here], measured[here], bus)
    return table


def alpha_beta(size: Floats, log_s: Floats, bus: float = 1.0) -> Floats:
    """Log seconds of alpha + beta size, fitted to these points by least squares of log seconds."""
    last = int(np.argmax(size))
    starts = [
        (float(log_s.min()) + a, float(log_s[last] - np.log(size[last])) + b) for a in (0.0, 0.3) for b in (0.0, 0.5)
    ]
    return _fitted(lambda p: np.logaddexp(p[0], p[1] + np.log(size)), log_s, starts)


def sigmoid(size: Floats, log_s: Floats, bus: float = 1.0) -> Floats:
    """Log seconds by a sigmoid, log10(bus bandwidth) = L / (1 + exp(-k (log2 size - x0))) + b, four parameters."""
    octave, log_bus = np.log2(size), np.log(bus * size)
    decades = (log_bus - log_s) / np.log(10.0)

    def curve(p: Floats) -> Floats:
        return log_bus - np.log(10.0) * (p[3] + p[0] / (1.0 + np.exp(np.clip(-p[1] * (octave - p[2]), -500, 500))))

    starts = [(np.ptp(decades), k, x0, decades.min()) for k in (0.2, 0.5) for x0 in (14.0, 17.0, 20.0)]
    return _fitted(curve, log_s, starts)


def nearest_scale(data: CollectivesData, place: FabricPlace, size: Floats) -> Floats:
    """Log seconds of the same configuration (else its fabric) at the nearest measured scale; NaN where none is measured."""
    same = data.config == place.config
    same = same if same.any() else data.config_fabric[data.config] == place.fabric
    if not same.any():
        return np.full(len(size), np.nan)
    doubled, across = steps(data.n_gpus, data.n_nodes, place.n_gpus, place.n_nodes)
    apart = doubled + across  # from one node to several counts as one doubling more
    here = same & (apart <= apart[same].min() + 1e-9)
    bytes_here = np.unique(data.log_bytes[here])
    median = [np.median(data.log_s[here & (data.log_bytes == one)]) for one in bytes_here]
    return np.interp(np.log(size), bytes_here, np.array(median))


def _fitted(curve: Callable[[Floats], Floats], log_s: Floats, starts: Sequence[tuple[float, ...]]) -> Floats:
    fits = [least_squares(lambda p: curve(p) - log_s, start) for start in starts]
    return curve(min(fits, key=lambda fit: fit.cost).x)


def _mape(every: pd.DataFrame, column: str) -> float:
    error = np.abs(np.expm1(floats(every, column) - floats(every, "measured")))
    return float(np.nanmean(error)) if not np.isnan(error).all() else np.nan


def _distance_from_uniform(pit: Floats) -> float:
    """Kolmogorov-Smirnov distance of the rows' places in their predictions from a uniform distribution."""
    ordered, n = np.sort(pit), len(pit)
    return float(np.maximum(np.arange(1, n + 1) / n - ordered, ordered - np.arange(n) / n).max())


def _position(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else -1


def _named(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Normal priors, mean and standard deviation. Scales are log-normal, in units of log seconds.
SPREADS = {
    # A law of seven numbers misses measured curves by 5-25%, simulated ones by nothing
    "log_curve_scale": (np.log(0.05), 0.7),
    "log_step_scale": (np.log(0.07), 0.5),  # residuals change by 3-20% per doubling of scale
    "log_across_scale": (np.log(0.20), 0.5),  # and by 8-50% from one node to several: other links, other algorithms
    "log_uneven": (np.log(0.02), 1.2),  # unevenness of cells around a smooth curve on eight GPUs: 0.2-20%
    "uneven_growth": (0.1, 0.15),  # larger by a factor 1.1 (0.8 to 1.5) per doubling of scale
    "log_noise": (np.log(0.01), 1.0),  # repeats on eight GPUs agree to 0.1-10%
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
        size_law: dependence on size, one of `laws.LAWS`; chosen by the error on scales left out (see the study).
    """

    size_law: str = "power"

    name = "collectives"
    holdout_method = "nuts"
    columns = COLUMNS
    reported = (
        "curve_scale", "step_scale", "across_scale", "log_uneven", "uneven_growth", "log_noise", "noise_growth",
        "in_place",
    )  # fmt: skip
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
        numpyro.factor("cells", predict.log_likelihood(data, off, variance, scale, profile))
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

    def method_for(self, data: CollectivesData) -> str:
        """Least squares where two numbers per fabric say it all."""
        return "least_squares" if are_two_numbers_enough(self.size_law, data) else self.default_method

    def least_squares(self, data: CollectivesData, n_draw: int, key: Array) -> tuple[Draws, Verdict]:
        """Draws around latency and bandwidth, or around the whole law."""
        return draws_and_verdict(self.size_law, data, SPREADS, n_draw, generator(key))

    def complete(self, data: CollectivesData, draws: Draws, key: Array) -> dict[str, np.ndarray]:
        """The residuals [draw, curve, knot], which the program integrates out."""
        return predict.drawn_residuals(self.size_law, data, draws, generator(key))

    def judged(self, data: CollectivesData, draws: Draws) -> Mapping[str, np.ndarray]:
        """Draws that data can determine [chain, draw, ...]: the law where it was measured, and spreads of their levels."""
        fabric = data.curve_fabric
        p = {name: np.asarray(draws[name])[..., fabric] for name in (*laws.priors(self.size_law), "two_node")}
        latency = laws.log_seconds(self.size_law, p, data.curve_where, SHORT_BYTES)
        bandwidth = -np.log(laws.wire_s_per_byte(p, data.curve_where))
        names = ["curve_scale", "log_uneven", "in_place", *(["log_noise"] if len(data.repeat) else [])]
        if len(data.curve_gpus) > len(data.fabrics):
            names += ["step_scale", "uneven_growth", *(["noise_growth"] if len(data.repeat) else [])]
        names += ["across_scale"] if data.curve_across.any() else []
        return {"log_latency_s": latency, "log_bytes_per_s": bandwidth} | {
            name: np.asarray(draws[name]) for name in names
        }

    def describe(self, data: CollectivesData, draws: Draws) -> dict[str, Any]:
        """Latency, bandwidth and noise by fabric and scale, with 90% intervals."""
        return report.describe(self.size_law, data, draws)

    def curves(self, data: CollectivesData, draws: Draws) -> list[CollectiveCurve]:
        """Bus bandwidth by message size of every measured curve."""
        return fitted_curves(self.size_law, data, draws)

    def variability(self, data: CollectivesData, draw: Mapping[str, np.ndarray]) -> Variability:
        """The noise of repeats at the largest measured scale of every operation, as the `call` factor of its class."""
        return report.variability(data, draw)

    def measured_cost(
        self, data: CollectivesData, draws: Draws, cluster: Cluster, dtype: str, n_draw: int, key: Array
    ) -> MeasuredTables:
        """Seconds over those of the cluster's own network."""
        rng = generator(key)
        return measured_collectives(self.size_law, data, draws, cluster, n_draw, rng)

    def score(
        self, data: CollectivesData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """One score per value of `column`; groups without a usable row have none."""
        rows, _ = plain_rows(left_out)
        rows = named(rows)
        rng = generator(key)
        return [
            _score(_named(name), group, self.size_law, data, draws, rng)
            for name, group in rows.groupby(column, sort=True)
        ]

    def seconds(
        self,
        data: CollectivesData,
        draws: Draws,
        *,
        op: str,
        message_bytes: float,
        n_gpus: int,
        n_nodes: int,
        gpu: str = "",
        network: str = "",
        source: str = "",
        in_place: bool = False,
        key: Array,
    ) -> np.ndarray:
        """Seconds [draw] of one call, with its noise.

        Args:
            op: as measured: "all_reduce", ...
            message_bytes: size as nccl-tests counts it, > 0.
            n_gpus, n_nodes: members, and nodes that they are spread over.
            gpu, network, source: which fabric, as far as needed to tell; one that was not measured is predicted from the others.

        Raises:
            FitError: `op` was not measured, several fabrics fit, or there are fewer GPUs than nodes.
        """
        if not 1 <= n_nodes <= n_gpus or n_gpus < 2 or not message_bytes > 0.0:
            raise FitError(
                f"{message_bytes:g} bytes on {n_gpus} GPUs in {n_nodes} nodes: at least two GPUs, one per node, and a byte are "
                "needed"
            )
        rng = generator(key)
        fabric = find_fabric(data, op, {"gpu": gpu, "network": network, "source": source})
        configs = np.flatnonzero(data.config_fabric == fabric)
        config = rng.choice(configs, len(draws["in_place"])) if len(configs) else -1
        place = FabricPlace(known_op(op), float(n_gpus), float(n_nodes), fabric, config)
        centre = log_centre(self.size_law, data, draws, place, [message_bytes], rng)
        centre = centre + noise(data, draws, place, [message_bytes], rng)
        return np.exp(centre[:, 0] + draws["in_place"] * in_place)

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
    """Returns how much noisier than others each size is, a log factor at the knots [knot]."""
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
    """Log scale of unevenness or noise of every row of `fabric` and `n_gpus`; it grows with the doublings of scale."""
    return levels[kind][fabric] + spread[f"{kind}_growth"] * jnp.log2(n_gpus / laws.REFERENCE_GPUS)


def _normals(site: str, priors: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Independent normal values by name, sampled together, which compiles faster than one by one."""
    mean, sd = np.array(list(priors.values())).T
    values = _sample(site, dist.Normal(mean, sd).to_event(1))
    return {name: jnp.asarray(numpyro.deterministic(name, values[i])) for i, name in enumerate(priors)}


def _sample(name: str, law: Any) -> Any:
    return jnp.asarray(numpyro.sample(name, law))
