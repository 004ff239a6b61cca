"""Draws of collective times for fabrics, sizes and scales measured and not.

At a scale between two measured ones the residual of the law is that of a random walk given both ends, beyond them it is
carried on; in either case its uncertainty is drawn. Where only groups across nodes were measured and one in a node is asked
for, or the other way round, the law is all there is. A fabric that was not measured has a law drawn around the measured ones
and a residual drawn around zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from prism_jax._typing import Floats
from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean

from ...model import Draws
from . import laws as laws
from .columns import FABRIC, known_op
from .data import CollectivesData
from .knots import SLOPE, Ints, axis, between_knots, doublings, steps

FABRIC_NOISE = 0.5  # fabrics differ by a factor 1.6 in unevenness and in noise


@dataclass(frozen=True)
class Place:
    """One fabric and scale.

    Attributes:
        op: operation.
        fabric: index; -1 for one that was not measured.
        config: index, one per draw or for all; -1 for one that was not measured.
    """

    op: str
    n_gpus: float
    n_nodes: float
    fabric: int
    config: int | Ints


def at_knots(law: str, parameters: Mapping[str, Any], data: CollectivesData) -> Any:
    """Log seconds of the law at the knots of every curve, [curve, knot]; parameters are [fabric]."""
    of_curve = {name: value[data.curve_fabric][:, None] for name, value in parameters.items()}
    where = laws.Place(*(value[:, None] for value in data.curve_where))
    log_bytes = (data.knots[None] + SLOPE * jnp.log2(data.curve_gpus)[:, None]) * jnp.log(2.0)
    return laws.log_seconds(law, of_curve, where, jnp.exp(log_bytes))


def interpolated(data: CollectivesData) -> Floats:
    """Log seconds at the knots of every curve through its cells: flat below them, in proportion to size above."""
    field = np.zeros((len(data.curve_from), len(data.knots)))
    x = axis(np.exp(data.log_bytes), data.n_gpus)
    for i in range(len(field)):
        here = data.curve == i
        at = np.unique(x[here])
        centre = np.array([np.median(data.log_s[here][x[here] == one]) for one in at])
        field[i] = np.interp(data.knots, at, centre) + np.log(2.0) * np.maximum(data.knots - at[-1], 0.0)
    return field


def typical_deviation(data: CollectivesData, field: Floats) -> Floats:
    """Median log deviation of every configuration with one of its own from `field`, at the knots [deviation, knot]."""
    at_cell = field[data.curve, data.knot] * (1.0 - data.weight) + field[data.curve, data.knot + 1] * data.weight
    number = data.deviation_of[data.config, (data.n_nodes > 1).astype(int)]
    nearest = data.knot + (data.weight > 0.5)
    out = np.zeros((data.n_deviation, len(data.knots)))
    for i in range(data.n_deviation):
        at = np.unique(nearest[number == i])
        centre = [np.median((data.log_s - at_cell)[(number == i) & (nearest == knot)]) for knot in at]
        out[i] = np.interp(np.arange(len(data.knots)), at, np.array(centre))
    return out


def log_centre(
    law: str, data: CollectivesData, draws: Draws, place: Place, n_bytes: ArrayLike, rng: np.random.Generator
) -> Floats:
    """Log seconds [draw, size] without unevenness and noise, out of place."""
    size = np.asarray(n_bytes, dtype=np.float64)
    parameters = _parameters(law, data, draws, place.fabric, rng)
    where = laws.Place(*(value[0] for value in laws.place(np.array([place.op]), [place.n_gpus], [place.n_nodes])))
    with jax.enable_x64(True):
        centre = np.array(
            laws.log_seconds(law, {name: value[:, None] for name, value in parameters.items()}, where, size[None])
        )
    table = _residual(law, data, draws, place, rng)
    number = np.broadcast_to(_deviation_of(data, place), len(table))
    if (number >= 0).any():
        table = table + np.where((number >= 0)[:, None], draws["deviation"][np.arange(len(table)), number], 0.0)
    below, share = between_knots(data.knots, axis(size, place.n_gpus))
    return centre + table[:, below] * (1.0 - share) + table[:, below + 1] * share


def noise(data: CollectivesData, draws: Draws, place: Place, n_bytes: ArrayLike, rng: np.random.Generator) -> Floats:
    """Draws [draw, size] of unevenness and noise together."""
    below, share = between_knots(data.knots, axis(n_bytes, place.n_gpus))
    restless = draws["profile"][:, below] * (1.0 - share) + draws["profile"][:, below + 1] * share
    total = np.zeros_like(restless)
    for kind, growth in (("uneven", "uneven_growth"), ("noise", "noise_growth")):
        level = draws[f"{kind}_level"][:, place.fabric] if place.fabric >= 0 else draws[f"log_{kind}"]
        if place.fabric < 0:
            level = level + FABRIC_NOISE * rng.standard_normal(len(level))
        scale = np.exp(level + draws[growth] * doublings(place.n_gpus))
        scale = scale[:, None] * np.exp(restless if kind == "uneven" else 0.0)
        total += scale * rng.standard_t(draws[f"{kind}_df"][:, None], size=total.shape)
    return total


def seconds(
    law: str,
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
            f"{message_bytes:g} bytes on {n_gpus} GPUs in {n_nodes} nodes: at least two GPUs, one per node, and a byte are needed"
        )
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    fabric = find_fabric(data, op, {"gpu": gpu, "network": network, "source": source})
    configs = np.flatnonzero(data.config_fabric == fabric)
    config = rng.choice(configs, len(draws["in_place"])) if len(configs) else -1
    place = Place(known_op(op), float(n_gpus), float(n_nodes), fabric, config)
    centre = log_centre(law, data, draws, place, [message_bytes], rng) + noise(data, draws, place, [message_bytes], rng)
    return np.exp(centre[:, 0] + draws["in_place"] * in_place)


def find_fabric(data: CollectivesData, op: str, wanted: Mapping[str, str]) -> int:
    """Index of the fabric of `op` that agrees with what is wanted; -1 if none does.

    Raises:
        FitError: the operation was not measured, or several fabrics agree.
    """
    measured = sorted(set(data.fabric_op))
    if op not in measured and (known_op(op) not in measured):
        raise FitError(f"op {op!r} was not measured{did_you_mean(op, measured)}")
    parts: list[dict[str, str]] = [dict(zip(FABRIC, key, strict=True)) for key in data.fabric_keys]
    wanted = {"op": known_op(op)} | {name: value for name, value in wanted.items() if value}
    hits = [i for i, part in enumerate(parts) if all(part[name] == value for name, value in wanted.items())]
    if len(hits) > 1:
        several = "; ".join(data.fabrics[i] for i in hits[:4])
        raise FitError(f"{len(hits)} fabrics fit {wanted}: {several}. Say which by gpu, network or source.")
    return hits[0] if hits else -1


def _parameters(
    law: str, data: CollectivesData, draws: Draws, fabric: int, rng: np.random.Generator
) -> dict[str, Floats]:
    """The law's parameters [draw] of a fabric, or of one not measured."""
    known = laws.priors(law)
    if fabric >= 0:
        return {name: np.asarray(draws[name])[:, fabric] for name in (*known, "two_node")}
    out = {}
    for name, prior in known.items():
        one = np.asarray(draws[name])[:, 0]
        if f"all_{name}" in draws:
            centre, variance = np.asarray(draws[f"all_{name}"]), prior.between**2
        else:  # one fabric says this much of the others
            weight = prior.sd**2 / (prior.sd**2 + prior.between**2)
            centre, variance = prior.median + weight * (one - prior.median), prior.between**2 * (1.0 + weight)
        out[name] = centre + np.sqrt(variance) * rng.standard_normal(len(one))
    out["two_node"] = laws.TWO_NODE_SCALE * np.abs(rng.standard_cauchy(len(draws["in_place"])))
    return out


def _residual(law: str, data: CollectivesData, draws: Draws, place: Place, rng: np.random.Generator) -> Floats:
    """Residual of the law at the knots [draw, knot], for a scale measured or not."""
    curves = np.flatnonzero(data.curve_fabric == place.fabric)
    fresh = _smooth(data, draws, rng)
    if not len(curves):
        return draws["curve_scale"][:, None] * fresh
    of_curve = draws["residual"][:, curves]
    gpus, nodes = data.curve_gpus[curves], data.curve_nodes[curves]
    same = (gpus == place.n_gpus) & (nodes == place.n_nodes)
    if same.any():
        return of_curve[:, np.flatnonzero(same)[0]]
    if not (
        (nodes > 1) == (place.n_nodes > 1)
    ).any():  # curves across nodes say little of those in a node, and vice versa
        return np.hypot(draws["curve_scale"], draws["across_scale"])[:, None] * fresh
    doubled, across = steps(gpus, nodes, place.n_gpus, place.n_nodes)
    variance = draws["step_scale"][:, None] ** 2 * doubled + draws["across_scale"][:, None] ** 2 * across
    order = np.lexsort((np.append(gpus, place.n_gpus), np.append(nodes, place.n_nodes) > 1))
    centre, spread = bridge(of_curve, variance, int(np.flatnonzero(order == len(curves))[0]))
    return centre + spread[:, None] * fresh


def _smooth(data: CollectivesData, draws: Draws, rng: np.random.Generator) -> Floats:
    """Residuals at the knots but for their scale, [draw, knot]."""
    white = rng.standard_normal((len(draws["in_place"]), len(data.knots)))
    return np.exp(draws["profile"]) * (white @ data.smooth.T)


def bridge(residual: Floats, variance: Floats, above: int) -> tuple[Floats, Floats]:
    """Mean [draw, knot] and standard deviation [draw] of a random walk between two of the places where it is known.

    Args:
        residual: of known places in the order of scale [draw, place, knot].
        variance: of the step from each of them to the one asked for [draw, place].
        above: the first place above the one asked for; none is known on one side at either end.
    """
    if above in (0, residual.shape[1]):
        end = min(above, residual.shape[1] - 1)
        return residual[:, end], np.sqrt(variance[:, end])
    low, high = variance[:, above - 1], variance[:, above]
    share = (low / (low + high))[:, None]
    return residual[:, above - 1] * (1.0 - share) + residual[:, above] * share, np.sqrt(low * high / (low + high))


def _deviation_of(data: CollectivesData, place: Place) -> Any:
    config = np.asarray(place.config)
    return np.where(config >= 0, data.deviation_of[config, int(place.n_nodes > 1)], -1)
