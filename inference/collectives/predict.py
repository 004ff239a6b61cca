"""Residuals of the law: integrated out for the sampler, drawn for predictions at sizes, scales and fabrics measured and not.

    off[cell] = residual(curve, x) + unevenness
    residual(curve) = residual(curve one scale below) + scale[curve] exp(profile) smooth z,    z ~ N(0, 1) at the knots

What the sampler sees are the law's parameters and the spreads. Given the spreads all is normal: a filter runs along the curves of
a fabric, and what it leaves at each is one update by the cells there. The same filter, run backwards with draws, gives the
residuals of each draw of the posterior.

At a scale between two measured ones the residual is that of a random walk given both ends, beyond them it is carried on; in
either case its uncertainty is drawn. Where only groups across nodes were measured and one in a node is asked for, or the other
way round, the law is all there is. A fabric that was not measured has a law drawn around the measured ones and a residual drawn
around zero.
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

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import FitError
from prism_jax.core.registry import did_you_mean

from ..engine.laplace import inverse
from ..engine.model import Draws
from . import laws
from .data import FABRIC, CollectivesData, known_op
from .laws import DF, SMALLEST_SPREAD, Ints, axis, between_knots, doublings, steps


def log_likelihood(data: CollectivesData, off: Any, variance: Any, scale: Any, profile: Any) -> Any:
    """Log density of the cells, up to a constant.

    Args:
        off: log seconds less those of the law [cell].
        variance: of unevenness [cell].
        scale: of the step to each curve [curve].
        profile: log factor of steps at the knots [knot].
    """
    n_curve, n_knot = data.curve_from.shape[0], data.knots.shape[0]
    at_cell = _mixed(data) @ (jnp.exp(profile)[:, None] * data.smooth)
    weight = (jnp.arange(n_curve)[:, None] == data.curve) / variance
    precision = jnp.swapaxes(weight[:, :, None] * at_cell, 1, 2) @ at_cell
    score = (weight * off) @ at_cell
    first = jnp.asarray(data.curve_from) < 0
    eye = jnp.eye(n_knot)

    def update(mean: Any, prior: Any, prior_volume: Any, c: Any) -> tuple[tuple[Array, Array], Array]:
        after, volume = inverse(prior + precision[c])
        left = score[c] - precision[c] @ mean
        shift = after @ left
        quadratic = 2.0 * mean @ score[c] - mean @ precision[c] @ mean + left @ shift
        return (mean + shift, after), 0.5 * (quadratic - volume - prior_volume)

    def begin(c: Any) -> tuple[tuple[Array, Array], Array]:
        return update(jnp.zeros(n_knot), eye / scale[c] ** 2, 2.0 * n_knot * jnp.log(scale[c]), c)

    def step(before: tuple[Array, Array], c: Any) -> tuple[tuple[Array, Array], Array]:
        mean, covariance = before
        return jax.lax.cond(first[c], begin, lambda c: update(mean, *inverse(covariance + scale[c] ** 2 * eye), c), c)

    smallest, density = begin(0)
    if n_curve > 1:
        _, others = jax.lax.scan(step, smallest, jnp.arange(1, n_curve))
        density += jnp.sum(others)
    return density - 0.5 * jnp.sum(off**2 / variance + jnp.log(variance))


def residuals(
    data: CollectivesData, off: Floats, variance: Floats, scale: Floats, profile: Floats, rng: np.random.Generator
) -> Floats:
    """Draws of the residuals at the knots [draw, curve, knot]; arguments as those of `log_likelihood`, with a first axis [draw].

    The filter once more, in NumPy over all draws at a time, and back along the curves.
    """
    n_draw, n_knot = len(off), len(data.knots)
    shape = np.exp(profile)[:, :, None] * data.smooth
    mean, covariance = np.zeros((n_draw, n_knot)), np.zeros((n_draw, n_knot, n_knot))
    mixed, filtered = np.asarray(_mixed(data)), []
    for c in range(len(data.curve_from)):
        here = data.curve == c
        at_cell = mixed[here] @ shape
        weighted = np.swapaxes(at_cell, 1, 2) / variance[:, None, here]
        if data.curve_from[c] < 0:
            mean, covariance = np.zeros_like(mean), np.zeros_like(covariance)
        prior = np.linalg.inv(covariance + scale[:, c, None, None] ** 2 * np.eye(n_knot))
        covariance = np.asarray(np.linalg.inv(prior + weighted @ at_cell), dtype=np.float64)
        left = off[:, here] - _times(at_cell, mean)
        mean = mean + _times(covariance, _times(weighted, left))
        filtered.append((mean, covariance))
    white = np.zeros((n_draw, len(filtered), n_knot))
    for c in reversed(range(len(filtered))):
        mean, covariance = filtered[c]
        if c + 1 < len(filtered) and data.curve_from[c + 1] >= 0:
            gain = covariance @ np.linalg.inv(covariance + scale[:, c + 1, None, None] ** 2 * np.eye(n_knot))
            mean = mean + _times(gain, white[:, c + 1] - mean)
            covariance = covariance - gain @ covariance
        factor = np.linalg.cholesky(0.5 * (covariance + np.swapaxes(covariance, 1, 2)))
        white[:, c] = mean + _times(factor, rng.standard_normal((n_draw, n_knot)))
    return white @ np.swapaxes(shape, 1, 2)


def _mixed(data: CollectivesData) -> Any:
    """Linear interpolation weights of the knots in every cell, [cell, knot]."""
    knot, here = np.arange(data.knots.shape[0]), data.knot[:, None]
    return (knot == here) * (1.0 - data.weight[:, None]) + (knot == here + 1) * data.weight[:, None]


def _times(matrix: Floats, vector: Floats) -> Floats:
    return np.einsum("...ij,...j->...i", matrix, vector)


FABRIC_NOISE = 0.5  # fabrics differ by a factor 1.6 in unevenness and in noise


@dataclass(frozen=True)
class FabricPlace:
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


def between(table: Any, row: Any, data: CollectivesData) -> Any:
    """Values at every cell, between its two knots, of a table [..., row, knot]."""
    return table[..., row, data.knot] * (1.0 - data.weight) + table[..., row, data.knot + 1] * data.weight


def scale_of_curves(data: CollectivesData, scales: Mapping[str, Any], xp: Any) -> Any:
    """Spread of the step from the curve below to each curve [..., curve], of spreads [...]; `xp` is NumPy or its JAX twin."""
    curve, step, across = (
        xp.asarray(scales[name])[..., None] for name in ("curve_scale", "step_scale", "across_scale")
    )
    walked = xp.sqrt(step**2 * data.curve_step + across**2 * data.curve_across)
    return xp.where(data.curve_from < 0, curve, walked)


def deviation_number(data: CollectivesData) -> Any:
    """Deviation of every cell's configuration in its regime, -1 for none [cell]."""
    return data.deviation_of[data.config, (data.n_nodes > 1).astype(int)]


def variance_of_cells(data: CollectivesData, uneven: Any, noise: Any, profile: Any, xp: Any) -> Any:
    """Variance of each cell around its curve [..., cell]: unevenness, and the noise that the mean of its repeats keeps.

    Args:
        uneven, noise: log scales of every cell [..., cell].
        profile: how much more restless than others each size is [..., knot].
        xp: NumPy or its JAX twin.
    """
    restless = between(profile[..., None, :], np.zeros(1, dtype=np.int64), data)
    rows = xp.exp(2.0 * noise) / data.n_row if data.repeat.shape[0] else 0.0
    return xp.exp(2.0 * (uneven + restless)) / data.trust + rows + SMALLEST_SPREAD**2


def _log_scale(data: CollectivesData, draws: Draws, fabric: Ints, kind: str) -> Floats:
    level, growth = np.asarray(draws[f"{kind}_level"]), np.asarray(draws[f"{kind}_growth"])
    return level[:, fabric] + growth[:, None] * doublings(data.n_gpus)


def drawn_residuals(law: str, data: CollectivesData, draws: Draws, rng: np.random.Generator) -> dict[str, Floats]:
    """Draws of the residuals at the knots, {"residual": [draw, curve, knot]}."""
    fabric = data.curve_fabric[data.curve]
    parameters = {name: np.asarray(draws[name])[:, fabric] for name in (*laws.priors(law), "two_node")}
    centre = laws.log_seconds(law, parameters, data.where, np.exp(data.log_bytes))
    if data.n_deviation:
        number = deviation_number(data)
        centre += np.where(number < 0, 0.0, between(np.asarray(draws["deviation"]), number, data))
    centre += np.asarray(draws["in_place"])[:, None] * data.in_place
    spreads = {kind: _log_scale(data, draws, fabric, kind) for kind in ("uneven", "noise")}
    scale = scale_of_curves(data, draws, np)
    variance = variance_of_cells(data, **spreads, profile=np.asarray(draws["profile"]), xp=np)
    return {"residual": residuals(data, data.log_s - centre, variance, scale, np.asarray(draws["profile"]), rng)}


def log_centre(
    law: str, data: CollectivesData, draws: Draws, place: FabricPlace, n_bytes: ArrayLike, rng: np.random.Generator
) -> Floats:
    """Log seconds [draw, size] without unevenness and noise, out of place."""
    size = np.asarray(n_bytes, dtype=np.float64)
    parameters = _parameters(law, draws, place.fabric, rng)
    where = laws.Places(*(value[0] for value in laws.place(np.array([place.op]), [place.n_gpus], [place.n_nodes])))
    centre = laws.log_seconds(law, {name: value[:, None] for name, value in parameters.items()}, where, size[None])
    table = _residual(data, draws, place, rng)
    number = np.broadcast_to(_deviation_of(data, place), len(table))
    if (number >= 0).any():
        table = table + np.where((number >= 0)[:, None], draws["deviation"][np.arange(len(table)), number], 0.0)
    below, share = between_knots(data.knots, axis(size, place.n_gpus))
    return centre + table[:, below] * (1.0 - share) + table[:, below + 1] * share


def noise(
    data: CollectivesData, draws: Draws, place: FabricPlace, n_bytes: ArrayLike, rng: np.random.Generator
) -> Floats:
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
        df = DF if kind == "uneven" else draws["noise_df"][:, None]
        total += scale * rng.standard_t(df, size=total.shape)
    return total


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


def _parameters(law: str, draws: Draws, fabric: int, rng: np.random.Generator) -> dict[str, Floats]:
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


def _residual(data: CollectivesData, draws: Draws, place: FabricPlace, rng: np.random.Generator) -> Floats:
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
    # Curves across nodes say little of those in a node, and vice versa.
    if not ((nodes > 1) == (place.n_nodes > 1)).any():
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


def _deviation_of(data: CollectivesData, place: FabricPlace) -> Any:
    config = np.asarray(place.config)
    return np.where(config >= 0, data.deviation_of[config, int(place.n_nodes > 1)], -1)
