"""Shares of chips, nodes and runs in a fleet's variance: of those that were measured, and how well they are known.

Spreads of a fit are those of the population, from which the next fleet's GPUs are drawn. What a person asks of a table is how
*these* GPUs differ: a chip at 15 standard deviations is in their variance with the place it has, and does not widen what is said
of a population. So for each posterior draw of the population, the effects of the measured nodes and chips are drawn given their
measurements, and the variance of the drawn effects is one draw of the fleet's own (the finite-population standard deviation:
Gelman, Annals of Statistics 33, 2005, section 3.5).

That is known better than the population's, but not exactly: a node's mean is its own effect plus the mean of its chips' effects,
and no number of runs tells the two apart. Of n nodes of g chips, the variance of the node effects b is uncertain by some
2 sd(b) sd(chip) / sqrt(g n): 2 points of all for 64 nodes of 4 to 8 chips, whoever estimates. A share that is known worse than to
`KNOWN_TO` is said as a range.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prism_jax.core.arrays import Floats

from ..engine.model import Draws
from ..engine.program import traced
from .data import FleetData
from .predict import FleetParameters, draw_cell_effects, laws_of

N_DRAW = 400  # of the posterior's: standard error of a median 6% of the share's standard deviation


def measured_variances(data: FleetData, draws: Draws) -> tuple[Floats, Floats, Floats]:
    """Variance of the effects of the measured chips, of the nodes, and of their sums [draw, kernel], in squares of log time.

    About the mean of a series, over cells: a node counts as often as GPUs were measured on it. Draws are thinned to `N_DRAW`.
    """
    laws = laws_of({name: value[_thinned(draws)] for name, value in draws.items()})
    arrays, rebuild = traced(data)

    def one(given: Mapping[str, Any], law: FleetParameters, key: jax.Array) -> jax.Array:
        fleet = rebuild(given)
        node, chip = draw_cell_effects(fleet, law, key)
        return jnp.stack([_variance(fleet, effect) for effect in (chip, node, chip + node)])

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), len(laws.slow_prob))
        each = jax.jit(lambda given, pairs: jax.lax.map(lambda pair: one(given, *pair), pairs, batch_size=16))
        found = np.asarray(each(arrays, (laws, keys)))
    return found[:, 0], found[:, 1], found[:, 2]


def _variance(data: FleetData, effect: jax.Array) -> jax.Array:
    """Mean square of the cells' effects about the mean of their series [kernel]."""
    ones = jnp.ones_like(data.count)
    n_series = len(data.series)
    mean = jax.ops.segment_sum(effect, data.cell_series, n_series) / jnp.maximum(
        jax.ops.segment_sum(ones, data.cell_series, n_series), 1.0
    )
    square = (effect - mean[data.cell_series]) ** 2
    n_kernel = len(data.kernel)
    return jax.ops.segment_sum(square, data.cell_kernel, n_kernel) / jnp.maximum(
        jax.ops.segment_sum(ones, data.cell_kernel, n_kernel), 1.0
    )


def _thinned(draws: Draws) -> slice:
    return slice(None, None, max(len(draws["slow_prob"]) // N_DRAW, 1))


def run_variance(data: FleetData, draws: Draws) -> Floats:
    """Variance of log time within a GPU [draw, kernel], disturbed rows and what covariates explain in it; thinned likewise."""
    draws = {name: value[_thinned(draws)] for name, value in draws.items()}
    run = draws["rest_spread"] ** 2 + data.disturbed_square
    if "run_spread" in draws:
        run = run + draws["run_spread"] ** 2
    if "slope" in draws:
        slope = draws["slope"]
        run = run + np.einsum("dkc,kce,dke->dk", slope, data.sxx, slope) / np.maximum(data.dof, 1.0)
    return run


def variance_shares(data: FleetData, draws: Draws) -> dict[str, Floats]:
    """Share of each level [draw, kernel]: GPU, node and run; GPU and node together where rows name no nodes."""
    gpu, node, both = measured_variances(data, draws)
    run = run_variance(data, draws)
    parts = {"gpu": gpu, "node": node, "run": run} if data.has_nodes else {"gpu and node": both, "run": run}
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}
