"""Density of a fleet's measurements given its population, with the scores of GPUs and nodes integrated out.

Given its node's score b, a GPU's score is a two-component normal mixture and its measurements are normal: closed form. The
integral over b is the trapezoidal rule on `b = c + s sinh(u)`, fine around where the node's GPUs put it and reaching far into
the tails; `c` and `s` follow the parameters, so that the rule is right whether nodes differ much or hardly at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from .data import FleetData

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
    """Log density of the cell means of each node [node]."""
    return logsumexp(_integrand(data, law)[2], axis=1)


def draw_node_scores(data: FleetData, law: FleetParameters, key: jax.Array) -> jax.Array:
    """One draw of the score of each measured node [node], in node spreads, what its shared runs left in its means included."""
    point_key, inside_key = jax.random.split(key)
    centre, width, log_weight = _integrand(data, law)
    u = jnp.linspace(-REACH, REACH, N_POINT)[jax.random.categorical(point_key, log_weight, axis=1)]
    return centre + width * jnp.sinh(u + STEP * jax.random.uniform(inside_key, u.shape, minval=-0.5, maxval=0.5))


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

    def component(mean: Any, sd: Any) -> jax.Array:
        width = 1.0 + sd**2 * pull
        about = square - 2.0 * mean * lean + mean**2 * pull - sd**2 * (lean - mean * pull) ** 2 / width
        return -0.5 * (constant + jnp.log(width) + about)

    bulk = jnp.log1p(-law.slow_prob) + component(0.0, 1.0)
    return _log_sum(bulk, jnp.log(law.slow_prob) + component(law.slow_shift, law.slow_spread))


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
    left = _run_variance(data, law)[:, None]

    def component(variance: Any) -> jax.Array:
        return -0.5 * (jnp.log(2.0 * jnp.pi * variance) + score**2 / variance)

    most = jnp.log1p(-law.far_prob) + component(1.0 + left)
    return _log_sum(most, jnp.log(law.far_prob) + component(law.far_spread**2 + left))


def _log_sum(a: jax.Array, b: jax.Array) -> jax.Array:
    """`jnp.logaddexp` for finite values: a third of its time with the gradient, where most of the likelihood's time goes."""
    return jnp.maximum(a, b) + jnp.log(1.0 + jnp.exp(-jnp.abs(a - b)))
