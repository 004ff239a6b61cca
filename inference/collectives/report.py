"""What a fit of collectives says: latency, bandwidth and noise by fabric and scale, and the variability they amount to.

Beside the posterior stands the law fitted by least squares of log seconds, with intervals: deterministic, and where the
posterior starts. The law's priors count as one row each, so that what a log does not tell (the network, of a log of one node)
stays at its median. Cells have their `trust` as weight. What the law leaves is alike at neighbouring sizes: of n cells only n
(1 - r) / (1 + r) say something of their own, with r the correlation of neighbours, and the intervals are as much wider.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import FitError
from prism_jax.variability.families import StudentT
from prism_jax.variability.tree import ClassVariability, Variability

from ..engine.model import Draws
from . import laws
from .data import CollectivesData
from .laws import Ints, axis, between_knots, doublings

ROUNDS = 3  # of the fit and the spread that it leaves
FIRST_SPREAD, SMALLEST_SPREAD = 0.1, 1e-3  # of log seconds
MOST_ALIKE = 0.9
N_DRAW = 1000  # behind the intervals
SEED = 0


@dataclass(frozen=True)
class FittedLaw:
    """The law of one fabric.

    Attributes:
        held: its parameters as `laws.from_reference` takes them, in the order of `laws.priors` [parameter].
        covariance: of these [parameter, parameter].
        spread: what the law leaves, of log seconds.
        alike: correlation of what it leaves at neighbouring sizes.
    """

    held: Floats
    covariance: Floats
    spread: float
    alike: float


def fit_laws(law: str, data: CollectivesData) -> list[FittedLaw]:
    """The law of every fabric."""
    with jax.enable_x64(True):
        return [_fit(law, data, fabric) for fabric in range(len(data.fabrics))]


def drawn(law: str, data: CollectivesData, fabric: int, found: FittedLaw) -> dict[str, Floats]:
    """Parameters of the law [draw] as unsure as the fit is; the first draw is the estimate."""
    rng = np.random.default_rng(SEED)
    apart = rng.multivariate_normal(np.zeros(len(found.held)), found.covariance, N_DRAW)
    held = found.held + np.vstack([np.zeros((1, len(found.held))), apart])
    at = laws.Reference(*(values[fabric] for values in data.reference))
    with jax.enable_x64(True):
        p = laws.from_reference(dict(zip(laws.priors(law), held.T, strict=True)), at)
        return {name: np.asarray(value) for name, value in p.items()} | {"two_node": np.zeros(len(held))}


def _fit(law: str, data: CollectivesData, fabric: int) -> FittedLaw:
    here = np.flatnonzero(data.curve_fabric[data.curve] == fabric)
    known = laws.priors(law)
    at = laws.Reference(*(values[fabric] for values in data.reference))
    where = laws.Places(*(value[here] for value in data.where))
    median = np.array([prior.median for prior in known.values()])
    width = np.array([np.hypot(prior.sd, prior.between) for prior in known.values()])
    size, log_s, root = np.exp(data.log_bytes[here]), data.log_s[here], np.sqrt(data.trust[here])

    def left(held: Any, spread: Any) -> Any:
        p = laws.from_reference(dict(zip(known, held, strict=True)), at) | {"two_node": 0.0}
        of_cells = root * (log_s - laws.log_seconds(law, p, where, size)) / spread
        of_priors = (jnp.stack([p[name] for name in known]) - median) / width
        return jnp.concatenate([of_cells, of_priors])

    value, slope = jax.jit(left), jax.jit(jax.jacfwd(left))
    held = np.array([float(one) for one in laws.to_reference(dict(zip(known, median, strict=True)), at).values()])
    spread, alike = FIRST_SPREAD, 0.0
    for _ in range(ROUNDS):
        each = spread * np.sqrt((1.0 + alike) / (1.0 - alike))
        best = _minimum(partial(value, spread=each), partial(slope, spread=each), held)
        held = best.x
        rest = best.fun[: len(here)] * each
        spread = max(float(np.sqrt(np.mean(rest**2))), SMALLEST_SPREAD)
        alike = _alike(rest, data.curve[here], data.config[here], data.log_bytes[here])
    jacobian = np.asarray(slope(held, spread * np.sqrt((1.0 + alike) / (1.0 - alike))))
    return FittedLaw(held, np.linalg.inv(jacobian.T @ jacobian), spread, alike)


def _minimum(value: Callable[..., Any], slope: Callable[..., Any], begin: Floats) -> Any:
    """What SciPy finds; the functions are compiled ones."""

    def slopes(x: Floats) -> Floats:
        return np.asarray(slope(x))

    jacobian: Any = slopes  # SciPy's type allows names alone
    return least_squares(lambda x: np.asarray(value(x)), begin, jac=jacobian, x_scale="jac")


def _alike(rest: Floats, curve: Ints, config: Ints, log_bytes: Floats) -> float:
    """Correlation of neighbours in size on one curve; no less than none."""
    order = np.lexsort((log_bytes, config, curve))
    same = (np.diff(curve[order]) == 0) & (np.diff(config[order]) == 0)
    if not same.any():
        return 0.0
    one, other = rest[order][:-1][same], rest[order][1:][same]
    found = float(one @ other / max(float(np.sqrt((one @ one) * (other @ other))), 1e-300))
    return float(np.clip(found, 0.0, MOST_ALIKE))


SMALLEST_SCALE, LARGEST_SCALE = 1e-6, 2.0  # what the StudentT family takes
DF_RANGE = (1.1, 200.0)
SHORT_BYTES = 1024.0  # the message whose time is called latency: short on any link, and in nearly every log


def describe(law: str, data: CollectivesData, draws: Draws) -> dict[str, Any]:
    """Figures with 90 % intervals: [5 %, median, 95 %]; what the data leave at its prior is not among them."""
    least = fit_laws(law, data)
    several = len(data.curve_gpus) > len(data.fabrics)
    return {
        "law": law,
        "n_cells": len(data.log_s),
        "n_repeats": len(data.repeat),
        "fabrics": {name: _fabric(law, data, draws, i) for i, name in enumerate(data.fabrics)},
        "least_squares": {name: _least_squares(law, data, i, least[i]) for i, name in enumerate(data.fabrics)},
        "residual_sd": _interval(draws["curve_scale"]),
        **({"residual_sd_per_doubling": _interval(draws["step_scale"])} if several else {}),
        **({"residual_sd_across_nodes": _interval(draws["across_scale"])} if data.curve_across.any() else {}),
        **({"noise_growth_per_doubling": _interval(np.exp(draws["noise_growth"]))} if several else {}),
        **({"unevenness_growth_per_doubling": _interval(np.exp(draws["uneven_growth"]))} if several else {}),
        **({"noise_degrees_of_freedom": _interval(draws["noise_df"])} if len(data.repeat) else {}),
        "in_place_over_out_of_place": _interval(np.exp(draws["in_place"])),
        "notes": list(data.notes),
    }


def noise_scale(
    data: CollectivesData, draws: Mapping[str, np.ndarray], fabric: int, n_gpus: float, kind: str = "noise"
) -> Any:
    """Scale of log seconds of repeats ("noise") or cells ("uneven") at a scale, per draw."""
    level, growth = np.asarray(draws[f"{kind}_level"])[..., fabric], np.asarray(draws[f"{kind}_growth"])
    return np.exp(level + growth * doublings(n_gpus))


def variability(data: CollectivesData, draw: Mapping[str, np.ndarray], n_gpus: float | None = None) -> Variability:
    """The `call` factor of every measured operation, from the noise between repeats.

    The scale is `n_gpus`, or the largest measured one; of several fabrics of an operation the typical (median) noise counts.
    A row of nccl-tests is the mean of many calls: the noise is that between such means, a lower bound for single calls.
    """
    if not len(data.repeat):
        raise FitError(
            "every message size was measured once: noise cannot be told from the unevenness of the curve. "
            "Add repeats (more runs, or in place beside out of place)."
        )
    df = float(np.clip(draw["noise_df"], *DF_RANGE))
    classes = {}
    for op in sorted(set(data.fabric_op)):
        fabrics = [i for i, other in enumerate(data.fabric_op) if other == op and (data.repeat_fabric == i).any()]
        if not fabrics:
            continue
        largest = max(float(data.curve_gpus[data.curve_fabric == i].max()) for i in fabrics)
        scales = [float(noise_scale(data, draw, i, n_gpus or largest)) for i in fabrics]
        scale = float(np.clip(np.median(scales), SMALLEST_SCALE, LARGEST_SCALE))
        classes[op] = ClassVariability(call=StudentT(scale, df))
    return Variability(name="collectives", classes=classes, source="noise between repeats of measured collectives")


def _fabric(law: str, data: CollectivesData, draws: Draws, fabric: int) -> dict[str, Any]:
    """Latency and bus bandwidth at every measured scale, and unevenness and noise there."""
    p = {name: np.asarray(draws[name])[:, fabric] for name in (*laws.priors(law), "two_node")}
    out = {}
    for i in np.flatnonzero(data.curve_fabric == fabric):
        residual = np.asarray(draws["residual"])[:, i]
        below, share = between_knots(data.knots, _ends(data, int(i)))
        low, high = (residual[:, below] * (1.0 - share) + residual[:, below + 1] * share).T
        latency, bandwidth = _latency_and_bandwidth(law, p, data, int(i))
        out[scale_name(data, int(i))] = {
            "latency_s": _interval(latency * np.exp(low)),
            "bus_bytes_per_s": _interval(bandwidth * np.exp(-high)),
            "noise": _interval(noise_scale(data, draws, fabric, data.curve_gpus[i])),
            "unevenness": _interval(noise_scale(data, draws, fabric, data.curve_gpus[i], "uneven")),
        }
    return out


def _least_squares(law: str, data: CollectivesData, fabric: int, found: FittedLaw) -> dict[str, Any]:
    """Latency and bus bandwidth of the law alone, by least squares: [5 %, estimate, 95 %]."""
    p = drawn(law, data, fabric, found)
    out: dict[str, Any] = {}
    for i in np.flatnonzero(data.curve_fabric == fabric):
        latency, bandwidth = _latency_and_bandwidth(law, p, data, int(i))
        out[scale_name(data, int(i))] = {
            "latency_s": _around_estimate(latency),
            "bus_bytes_per_s": _around_estimate(bandwidth),
        }
    return out | {"left_by_the_law": found.spread}


def scale_name(data: CollectivesData, curve: int) -> str:
    """What a scale is called in reports."""
    nodes = data.curve_nodes[curve]
    return f"{data.curve_gpus[curve]:g} GPUs in {nodes:g} {'nodes' if nodes > 1 else 'node'}"


def _ends(data: CollectivesData, curve: int) -> np.ndarray:
    """Where along the knots a short message and the largest measured one of a curve lie."""
    largest = float(data.log_bytes[data.curve == curve].max())
    return axis([SHORT_BYTES, np.exp(largest)], data.curve_gpus[curve])


def _latency_and_bandwidth(law: str, p: laws.Parameters, data: CollectivesData, curve: int) -> tuple[Any, Any]:
    """Seconds of a short message and bus bytes per second of a very long one [draw], by the law alone."""
    where = laws.Places(*(float(value[curve]) for value in data.curve_where))
    with jax.enable_x64(True):
        latency = np.exp(np.asarray(laws.log_seconds(law, p, where, SHORT_BYTES)))
        return latency, where.bus / np.asarray(laws.wire_s_per_byte(p, where))


def _interval(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.quantile(np.asarray(values), [0.05, 0.5, 0.95])]


def _around_estimate(values: np.ndarray) -> list[float]:
    """The same of draws of which the first is the estimate."""
    low, _, high = _interval(values)
    return [low, float(values[0]), high]
