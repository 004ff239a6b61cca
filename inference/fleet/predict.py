"""Density of a fleet's measurements given its population, and GPUs that were not measured, as a fitted fleet has them.

Scores of GPUs and nodes are integrated out. Given its node's score b, a GPU's score is a two-component normal mixture and its
measurements are normal: closed form. The integral over b is the trapezoidal rule on `b = c + s sinh(u)`, fine around where the
node's GPUs put it and reaching far into the tails; `c` and `s` follow the parameters, so that the rule is right whether nodes
differ much or hardly at all. A table that names no nodes (ranks alone) or one does not show how nodes differ: its GPUs hold it,
and the spread of nodes keeps its prior. As a second unknown of one sum it made chains ten times as long.

Whether the data ask for a second component (slow chips among the GPUs, far nodes among the nodes) a Bayes factor says. The
model without the component is the model with a share of zero, so the factor is the prior probability of a share below one
member (1/n) over the posterior one (Savage and Dickey's density ratio, with a narrow interval in place of the point). Where the
factor is small, shift and spread of the component are its prior: they are neither reported nor judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.scipy.special import logsumexp

from ..engine.diagnostics import Checks
from ..engine.model import Draws, GroupScore
from ..engine.program import generator, traced
from .data import FleetData, labelled

N_POINT = 29
REACH = 4.2  # of u: 33 widths on either side
STEP = 2.0 * REACH / (N_POINT - 1)


class FleetParameters(NamedTuple):
    """The population: typical log seconds [series], spreads of log time [kernel], slow chips, far nodes."""

    typical_log_s: Any
    gpu_spread: Any
    node_spread: Any
    run_spread: Any
    rest_spread: Any
    kernel_spread: Any
    slow_prob: Any
    slow_shift: Any
    slow_spread: Any
    far_prob: Any
    far_spread: Any


def laws_of(draws: Mapping[str, np.ndarray]) -> FleetParameters:
    """The populations of draws [draw, ...]."""
    nothing = np.zeros_like(draws["gpu_spread"])
    return FleetParameters(*(draws.get(name, nothing) for name in FleetParameters._fields))


def log_nodes(data: FleetData, law: FleetParameters) -> jax.Array:
    """Log density of the cell means of each node [node]; of its GPUs alone where the table tells no nodes apart."""
    if not data.has_nodes:
        log_gpu = _log_gpus(data, law, jnp.zeros((len(data.gpu), 1)))[:, 0]
        return jax.ops.segment_sum(log_gpu, jnp.asarray(data.gpu_node), len(data.node))
    return logsumexp(_integrand(data, law)[2], axis=1)


def draw_node_scores(data: FleetData, law: FleetParameters, key: jax.Array) -> jax.Array:
    """One draw of the score of each measured node [node], in node spreads, what its shared runs left in its means included.

    Zero where the table tells no nodes apart: how they differ is in the scores of the GPUs then.
    """
    if not data.has_nodes:
        return jnp.zeros(len(data.node))
    point_key, inside_key = jax.random.split(key)
    centre, width, log_weight = _integrand(data, law)
    u = jnp.linspace(-REACH, REACH, N_POINT)[jax.random.categorical(point_key, log_weight, axis=1)]
    return centre + width * jnp.sinh(u + STEP * jax.random.uniform(inside_key, u.shape, minval=-0.5, maxval=0.5))


def draw_cell_effects(data: FleetData, law: FleetParameters, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One draw of what the node, and what the chip, adds to the log time of each measured cell [cell], runs left out."""
    score_key, run_key, chip_key, own_key = jax.random.split(key, 4)
    k, of_node = data.cell_kernel, jnp.asarray(data.gpu_node)[data.cell_gpu]
    tau, nu, variance = law.gpu_spread[k], law.node_spread[k], _cell_variance(data, law)
    score = draw_node_scores(data, law, score_key)
    left = data.mean_log - law.typical_log_s[data.cell_series] - nu * score[of_node]

    def per_gpu(value: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(value / variance, data.cell_gpu, len(data.gpu))

    chip = tau * _draw_chips(law, per_gpu(tau**2), per_gpu(tau * left), chip_key)[data.cell_gpu]
    own = law.kernel_spread[k] ** 2
    noise = jax.random.normal(own_key, left.shape) * jnp.sqrt(own * (1.0 - own / variance))
    return nu * _without_runs(data, law, score, run_key)[of_node], chip + own / variance * (left - chip) + noise


def _draw_chips(law: FleetParameters, pull: jax.Array, lean: jax.Array, key: jax.Array) -> jax.Array:
    """One draw of the score of each measured GPU [gpu], given its node's."""
    which_key, where_key = jax.random.split(key)
    bulk, slow = _components(law, pull, lean)
    is_slow = jax.random.uniform(which_key, lean.shape) < jax.nn.sigmoid(slow - bulk)
    mean, sd = jnp.where(is_slow, law.slow_shift, 0.0), jnp.where(is_slow, law.slow_spread, 1.0)
    precision = pull + sd**-2.0
    return (lean + mean * sd**-2.0) / precision + jax.random.normal(where_key, lean.shape) / jnp.sqrt(precision)


def _without_runs(data: FleetData, law: FleetParameters, score: jax.Array, key: jax.Array) -> jax.Array:
    """One draw of each node's own score [node], given the one that holds what its shared runs left in its means."""
    which_key, where_key = jax.random.split(key)
    left = _run_variance(data, law)
    most, far = _node_components(law, score, left)
    is_far = jax.random.uniform(which_key, score.shape) < jax.nn.sigmoid(far - most)
    own = jnp.where(is_far, law.far_spread**2, 1.0)
    kept = own / (own + left)
    return kept * score + jnp.sqrt(kept * left) * jax.random.normal(where_key, score.shape)


def _integrand(data: FleetData, law: FleetParameters) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Centre and width [node] of the rule, and the log [node, point] of prior times likelihood times the rule's step."""
    u = jnp.linspace(-REACH, REACH, N_POINT)
    centre, width = _where(data, law)
    score = centre[:, None] + width[:, None] * jnp.sinh(u)
    log_step = jnp.log(width)[:, None] + jnp.log(jnp.cosh(u) * STEP)
    log_gpu = _log_gpus(data, law, score[jnp.asarray(data.gpu_node)])
    log_likelihood = jax.ops.segment_sum(log_gpu, jnp.asarray(data.gpu_node), len(data.node))
    return centre, width, log_likelihood + _log_prior(data, law, score) + log_step


def _where(data: FleetData, law: FleetParameters) -> tuple[jax.Array, jax.Array]:
    """Centre and width [node] of the posterior of a node's score, roughly: its median cell, shrunk."""
    k, n_node = data.cell_kernel, len(data.node)
    cell_node = jnp.asarray(data.gpu_node)[data.cell_gpu]
    variance = law.gpu_spread[k] ** 2 + _cell_variance(data, law)
    per_gpu = 1.0 / jnp.maximum(jax.ops.segment_sum(jnp.ones_like(data.count), data.cell_gpu, len(data.gpu)), 1.0)
    told = jax.ops.segment_sum(law.node_spread[k] ** 2 / variance * per_gpu[data.cell_gpu], cell_node, n_node)
    spread = jax.ops.segment_sum(law.node_spread[k], cell_node, n_node) / jnp.maximum(
        jax.ops.segment_sum(jnp.ones_like(data.count), cell_node, n_node), 1.0
    )
    moved = jnp.mean(law.typical_log_s - data.series_median)
    prior = 1.0 + law.far_prob * (law.far_spread**2 - 1.0) + _run_variance(data, law)
    precision = told + 1.0 / prior
    return told / precision * (data.node_median - moved) / spread, jnp.sqrt(1.0 / precision)


def _log_gpus(data: FleetData, law: FleetParameters, score: jax.Array) -> jax.Array:
    """Log density [gpu, point] of a GPU's cell means given its node's score."""
    k, n_gpu = data.cell_kernel, len(data.gpu)
    variance = _cell_variance(data, law)
    rest = data.mean_log - law.typical_log_s[data.cell_series]
    tau, nu = law.gpu_spread[k], law.node_spread[k]

    def per_gpu(value: jax.Array) -> jax.Array:
        return jax.ops.segment_sum(value / variance, data.cell_gpu, n_gpu)[:, None]

    pull = per_gpu(tau**2)
    lean = per_gpu(tau * rest) - score * per_gpu(tau * nu)
    square = per_gpu(rest**2) - 2.0 * score * per_gpu(rest * nu) + score**2 * per_gpu(nu**2)
    constant = jax.ops.segment_sum(jnp.log(2.0 * jnp.pi * variance), data.cell_gpu, n_gpu)[:, None]
    return _log_sum(*_components(law, pull, lean, square, constant))


def _components(
    law: FleetParameters, pull: jax.Array, lean: jax.Array, square: Any = 0.0, constant: Any = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Log density of a GPU's cell means with its score in the bulk, and with it among the slow chips; in the shape of `lean`.

    Args:
        pull, lean: second and first order of the log density of its cell means in its score.
        square, constant: twice what does not depend on the score, with the sign changed.
    """

    def component(mean: Any, sd: Any) -> jax.Array:
        width = 1.0 + sd**2 * pull
        about = square - 2.0 * mean * lean + mean**2 * pull - sd**2 * (lean - mean * pull) ** 2 / width
        return -0.5 * (constant + jnp.log(width) + about)

    bulk = jnp.log1p(-law.slow_prob) + component(0.0, 1.0)
    return bulk, jnp.log(law.slow_prob) + component(law.slow_shift, law.slow_spread)


def _cell_variance(data: FleetData, law: FleetParameters) -> jax.Array:
    """Variance [cell] of a cell's mean given the scores of its GPU and node."""
    k = data.cell_kernel
    of_runs = law.rest_spread[k] ** 2 / data.count + law.run_spread[k] ** 2 / data.cell_runs
    return law.kernel_spread[k] ** 2 + of_runs


def _run_variance(data: FleetData, law: FleetParameters) -> jax.Array:
    """Variance [node] of what its shared runs leave in all of its means, in node spreads squared."""
    return (law.run_spread[0] / law.node_spread[0]) ** 2 / data.node_runs


def _log_prior(data: FleetData, law: FleetParameters, score: jax.Array) -> jax.Array:
    """Log density [node, point] of a node's score, what its runs leave included: most nodes, and few that lie far."""
    return _log_sum(*_node_components(law, score, _run_variance(data, law)[:, None]))


def _node_components(law: FleetParameters, score: jax.Array, left: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Log density of a node's score among most nodes, and among those that lie far; `left` is the variance that runs add."""

    def component(variance: Any) -> jax.Array:
        return -0.5 * (jnp.log(2.0 * jnp.pi * variance) + score**2 / variance)

    most = jnp.log1p(-law.far_prob) + component(1.0 + left)
    return most, jnp.log(law.far_prob) + component(law.far_spread**2 + left)


def _log_sum(a: jax.Array, b: jax.Array) -> jax.Array:
    """`jnp.logaddexp` for finite values: a third of its time with the gradient, where most of the likelihood's time goes."""
    return jnp.maximum(a, b) + jnp.log(1.0 + jnp.exp(-jnp.abs(a - b)))


# Slow chips: one in twenty expected, never half of a fleet (the bulk is what most chips do).
SLOW_PROB = (1.0, 9.0)  # Beta, times one half
POSITIVE = 3.0  # Bayes factor of "positive" evidence (Kass and Raftery, JASA 90, 1995)


@dataclass(frozen=True)
class Component:
    """A second component of the population.

    Attributes:
        share: [...] draws of its share of the members.
        n_member: measured GPUs or nodes.
    """

    share: np.ndarray
    n_member: int

    @property
    def bayes_factor(self) -> float:
        """Bayes factor for the component against none; as large as the number of draws can tell."""
        from scipy.stats import beta  # half a second, which a prediction does not pay

        fewer_than_one = 1.0 / self.n_member
        before = float(beta.cdf(2.0 * fewer_than_one, *SLOW_PROB))  # the share is half of a Beta
        after = float(np.mean(self.share < fewer_than_one))
        return before / max(after, 1.0 / self.share.size)

    @property
    def is_found(self) -> bool:
        """Whether the data ask for it."""
        return self.bayes_factor >= POSITIVE


def slow_chips(data: FleetData, draws: Draws) -> Component:
    """The component of slow (or fast) chips; draws in any shape."""
    return Component(draws["slow_prob"], len(data.gpu))


def far_nodes(data: FleetData, draws: Draws) -> Component:
    """The component of nodes that lie far from the others."""
    return Component(draws["far_prob"], len(data.node))


# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)


N_DRAW = 1000  # posterior draws behind a prediction


def new_gpus(
    data: FleetData, draws: Draws, *, series: str, nodes: Sequence[str | None], key: jax.Array, n_draw: int = N_DRAW
) -> np.ndarray:
    """Log seconds [draw, GPU] that GPUs not measured would take, without the noise of runs.

    Args:
        series: one of `data.series`.
        nodes: per GPU the name of a measured node, or None (or any other name) for a node that was not measured; GPUs with the
            same other name share a new node.
    """
    rng = generator(key)
    chosen = rng.integers(len(draws["gpu_spread"]), size=n_draw)
    s = data.series.index(series)
    k = int(data.cell_kernel[data.cell_series == s][0])
    part = {name: value[chosen] for name, value in draws.items()}
    score = _chip_scores(part, len(nodes), rng)
    own = part["kernel_spread"][:, k, None] * rng.standard_normal(score.shape) if "kernel_spread" in part else 0.0
    node = _node_effects(data, part, k, nodes, rng, key)
    return part["typical_log_s"][:, s, None] + node + part["gpu_spread"][:, k, None] * score + own


def _chip_scores(part: Draws, n_gpu: int, rng: np.random.Generator) -> np.ndarray:
    """z [draw, GPU]: bulk or slow component."""
    normal = rng.standard_normal((len(part["slow_prob"]), n_gpu))
    slow = rng.random(normal.shape) < part["slow_prob"][:, None]
    return np.where(slow, part["slow_shift"][:, None] + part["slow_spread"][:, None] * normal, normal)


def _node_effects(
    data: FleetData, part: Draws, kernel: int, nodes: Sequence[str | None], rng: np.random.Generator, key: jax.Array
) -> np.ndarray:
    """[draw, GPU]: posterior of measured nodes, the population for others."""
    place = {name: i for i, name in enumerate(data.node)}
    labels = [name if name is not None else f"new {i}" for i, name in enumerate(nodes)]
    unknown = sorted({name for name in labels if name not in place})
    fresh = _population(part, (len(part["far_prob"]), len(unknown)), rng)
    both = np.concatenate([each_draw(data, draw_node_scores, part, key), fresh], axis=1)
    place |= {name: len(data.node) + i for i, name in enumerate(unknown)}
    return part["node_spread"][:, kernel, None] * both[:, [place[name] for name in labels]]


def _population(part: Draws, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Scores of nodes that were not measured [draw, node]."""
    far = rng.random(shape) < part["far_prob"][:, None]
    return np.where(far, part["far_spread"][:, None], 1.0) * rng.standard_normal(shape)


def each_draw(data: FleetData, one: Callable[..., Any], draws: Draws, key: jax.Array) -> np.ndarray:
    """[draw, ...] a function of the fleet, and of a population and a key for each draw; float64, compiled once for all draws."""
    laws = laws_of(draws)
    arrays, rebuild = traced(data)
    with jax.enable_x64(True):
        keys = jax.random.split(key, len(laws.slow_prob))
        each = jax.jit(lambda given, pairs: jax.lax.map(lambda pair: one(rebuild(given), *pair), pairs, batch_size=16))
        return np.asarray(each(arrays, (laws, keys)))


def replicate(data: FleetData, draws: Draws, key: jax.Array) -> Checks:
    """Every cell's mean log seconds, over its series' median, against GPUs of the same node that were not measured."""
    measured, predicted = [], []
    for s, name in enumerate(data.series):
        cell = np.flatnonzero(data.cell_series == s)
        nodes = [str(data.node[n]) for n in data.gpu_node[data.cell_gpu[cell]]]
        drawn = new_gpus(data, draws, series=name, nodes=nodes, key=key)
        drawn = drawn + _run_noise(data, draws, s, data.count[cell], len(drawn), key)
        measured.append(data.mean_log[cell] - data.series_median[s])
        predicted.append(drawn - data.series_median[s])
    return Checks(np.concatenate(measured), np.concatenate(predicted, axis=1), "mean log time of a GPU over the median")


def score_split(data: FleetData, draws: Draws, left_out: pd.DataFrame, key: jax.Array) -> GroupScore:
    """One score for all GPUs left out: medians over series where there are several."""
    rows = labelled(left_out)
    calm = rows[~rows["disturbed"]]
    cells = calm.groupby(["series", "gpu"])["log_s"].agg(["size", "mean"])
    node_of = rows.groupby("gpu")["node"].agg(lambda names: names.mode().iloc[0])
    found = []
    for index, (name, part) in enumerate(cells.groupby(level="series")):
        if name not in data.series:
            continue
        cell = part.droplevel("series")
        nodes = [str(node) for node in node_of[cell.index]]
        found.append(_score_series(data, draws, str(name), cell, nodes, jax.random.fold_in(key, index)))
    if not found:
        return GroupScore("left out")
    figures = np.median(np.array(found), axis=0)
    return GroupScore("left out", *(float(value) for value in figures))


def _score_series(
    data: FleetData, draws: Draws, series: str, cell: pd.DataFrame, nodes: list[str], key: jax.Array
) -> tuple[float, ...]:
    """ks, ks_empirical, coverage_90, p95_p50_ape, p99_p50_ape of one series."""
    from scipy.stats import ks_2samp

    s = data.series.index(series)
    measured = cell["mean"].to_numpy(dtype=float)
    predicted = new_gpus(data, draws, series=series, nodes=nodes, key=key)
    predicted = predicted + _run_noise(data, draws, s, cell["size"].to_numpy(dtype=float), len(predicted), key)
    known = data.mean_log[data.cell_series == s]
    low, high = np.quantile(predicted, [0.05, 0.95], axis=0)
    ratio = [abs(_over_median(predicted, q) / _over_median(measured, q) - 1.0) for q in (0.95, 0.99)]
    coverage = float(np.mean((measured >= low) & (measured <= high)))
    pooled = predicted.ravel()
    return float(ks_2samp(measured, pooled).statistic), float(ks_2samp(measured, known).statistic), coverage, *ratio


def _run_noise(data: FleetData, draws: Draws, s: int, size: np.ndarray, n_draw: int, key: jax.Array) -> np.ndarray:
    """Draws the noise of the runs that is left in means of `size` runs [draw, GPU]."""
    rng = generator(jax.random.fold_in(key, 1))
    k = int(data.cell_kernel[data.cell_series == s][0])
    sigma = float(np.mean(draws["rest_spread"][:, k]))
    return sigma / np.sqrt(size) * rng.standard_normal((n_draw, len(size)))


def _over_median(log_s: np.ndarray, q: float) -> float:
    return float(np.exp(np.quantile(log_s, q) - np.median(log_s)))
