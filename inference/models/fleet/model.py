"""How GPUs and nodes of a fleet differ: log kernel time = kernel + node + GPU + run.

    log t = mu[series] + nu[kernel] b[node] + tau[kernel] z[GPU] + omega[kernel] e[GPU, kernel]
            + rho[kernel] u[node, run] + beta . (x - mean x of the GPU) + sigma[kernel] eps

`b` is normal with a share of nodes that lie far, `z` a bulk N(0, 1) plus a component of slow (or fast) chips; one score per GPU
for all kernels. GPUs and nodes are integrated out (`fleet_likelihood`), so that a fleet of any size leaves some ten numbers to
sample. `e` is present where GPUs were measured with several kernels, `u` where the GPUs of a node share runs, `x` (clock,
temperature, power) where they were logged: what they do to one GPU over time. What they explain *between* GPUs is a result, not
a correction: a chip is slow because it clocks low, and the next fleet will hold such chips too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd

from prism_jax.variability.tree import Variability

from ...engine import priors
from ...engine.checks import Checks
from ...engine.pytree import traced
from ...model import Draws, Model, Score
from .data import COLUMNS, FleetData, fleet_data
from .likelihood import FleetParameters, laws_of, log_nodes
from .predict import new_gpus as new_gpus, replicate, score_split
from .report import describe, fleet_variability, judged

REPORTED = (
    "typical_log_s",
    "gpu_spread",
    "node_spread",
    "run_spread",
    "rest_spread",
    "kernel_spread",
    "slow_prob",
    "slow_shift",
    "slow_spread",
    "far_prob",
    "far_spread",
    "slope",
)


class Fleet(Model[FleetData]):
    """The fleet model; see the module."""

    name = "fleet"
    holdout_method = "svi"
    columns = COLUMNS
    reported = REPORTED
    holdout = "halves"

    def prepare(self, frame: pd.DataFrame) -> FleetData:
        """The data of a checked table.

        Raises:
            DataError: there are fewer than four GPUs.
        """
        return fleet_data(frame)

    def program(self, data: FleetData) -> None:
        """The NumPyro model of log seconds; arrays of `data` are traced."""
        _program(data)

    def start(self, data: FleetData) -> dict[str, Any]:
        """Values of the sites at which chains begin, from moments of the data."""
        return _start(data)

    def describe(self, data: FleetData, draws: Draws) -> dict[str, Any]:
        """Shares of variance, spreads, slow chips and correlations with what was logged, with 90 % intervals."""
        return describe(data, draws)

    def judged(self, data: FleetData, draws: Draws) -> Draws:
        """What the verdict looks at: a second component's place only where the data ask for one, and the spread of all chips."""
        return judged(data, {name: value for name, value in draws.items() if name in REPORTED})

    def variability(self, data: FleetData, draw: Mapping[str, np.ndarray]) -> Variability:
        """The tree of one posterior draw: persistent GPU and node factors and the residual of every kernel class."""
        return fleet_variability(data, draw)

    def score(self, data: FleetData, draws: Draws, left_out: pd.DataFrame, column: str, key: jax.Array) -> list[Score]:
        """One score of a split: the GPUs left out are points of the predicted distribution."""
        return [score_split(data, draws, left_out, key)]

    def replicate(self, data: FleetData, draws: Draws, key: jax.Array) -> Checks:
        """Mean log seconds of every GPU and kernel, as of a GPU that was not measured on the same node."""
        return replicate(data, draws, key)

    def log_likelihood(self, data: FleetData, draws: Draws) -> tuple[np.ndarray, str]:
        """[draw, node] and what a group is."""
        arrays, rebuild = traced(data)
        laws = laws_of(draws)
        each = jax.jit(lambda given, laws: jax.lax.map(lambda law: log_nodes(rebuild(given), law), laws))
        return np.asarray(each(arrays, laws)), "node"


def _program(data: FleetData) -> None:
    n_kernel = len(data.kernel)

    def spread(name: str, prior: priors.Scale) -> Any:
        return numpyro.sample(name, prior.law().expand([n_kernel]).to_event(1))

    law = FleetParameters(
        typical_log_s=numpyro.sample(
            "typical_log_s", dist.Normal(jnp.asarray(data.series_median), priors.LOCATION_SD).to_event(1)
        ),
        gpu_spread=spread("gpu_spread", priors.GPU_SPREAD),
        node_spread=spread("node_spread", priors.NODE_SPREAD),
        run_spread=spread("run_spread", priors.RUN_SPREAD) if data.shared_runs else jnp.zeros(n_kernel),
        rest_spread=spread("rest_spread", priors.RUN_SPREAD),
        kernel_spread=spread("kernel_spread", priors.KERNEL_SPREAD) if data.several_kernels else jnp.zeros(n_kernel),
        slow_prob=numpyro.deterministic("slow_prob", 0.5 * numpyro.sample("slow_half", dist.Beta(*priors.SLOW_PROB))),
        slow_shift=numpyro.sample("slow_shift", dist.Normal(0.0, priors.SLOW_SHIFT_SD)),
        slow_spread=numpyro.sample("slow_spread", priors.SLOW_SPREAD.law()),
        far_prob=numpyro.deterministic("far_prob", 0.5 * numpyro.sample("far_half", dist.Beta(*priors.SLOW_PROB))),
        far_spread=numpyro.deterministic("far_spread", 1.0 + numpyro.sample("far_above", priors.FAR_ABOVE.law())),
    )
    _runs(data, law.run_spread, law.rest_spread)
    numpyro.factor("nodes", log_nodes(data, law).sum())


def _runs(data: FleetData, rho: jax.Array, sigma: jax.Array) -> None:
    """Repeats: sums of squares of shared runs, and of the rest less what the covariates explain."""
    squares, run_squares = data.syy, data.block_square
    if data.covariate:
        shape = (len(data.kernel), len(data.covariate))
        slope = numpyro.sample("slope", dist.Normal(0.0, priors.SLOPE_SD).expand(shape).to_event(2))
        explained = 2.0 * (slope * data.sxy).sum(-1) - jnp.einsum("kc,kcd,kd->k", slope, data.sxx, slope)
        squares = squares - explained
        of_block = jnp.asarray(slope)[data.block_kernel]
        run_squares = run_squares - 2.0 * (of_block * data.block_sxy).sum(-1)
        run_squares += jnp.einsum("bc,bcd,bd->b", of_block, data.block_sxx, of_block)
    if data.shared_runs:
        k = data.block_kernel
        variance = sigma[k] ** 2 + data.block_gpus * rho[k] ** 2
        shared = -0.5 * (data.block_dof * jnp.log(variance) + run_squares / variance)
        numpyro.factor("shared_runs", shared.sum())
    numpyro.factor("runs", (-data.dof * jnp.log(sigma) - 0.5 * squares / sigma**2).sum())


def _start(data: FleetData) -> dict[str, Any]:
    rest = data.mean_log - data.series_median[data.cell_series]
    total = np.array([_robust_sd(rest[data.cell_kernel == k]) for k in range(len(data.kernel))])
    run = np.sqrt(data.syy / np.maximum(data.dof, 1.0))
    start: dict[str, Any] = {
        "typical_log_s": data.series_median,
        "gpu_spread": total * (0.3 if data.on_nodes else 1.0),
        "node_spread": total * (1.0 if data.on_nodes else 0.2),
        "rest_spread": np.maximum(run, 1e-5),
        "slow_half": 0.1,
        "slow_shift": 3.0 * np.sign(_skew(rest)),
        "slow_spread": 1.5,
        "far_half": 0.1,
        "far_above": 2.0,
    }
    if data.shared_runs:
        start["run_spread"] = np.maximum(run, 1e-5)
    if data.several_kernels:
        start["kernel_spread"] = np.maximum(0.3 * total, 1e-5)
    if data.covariate:
        start["slope"] = np.zeros((len(data.kernel), len(data.covariate)))
    return start


def _robust_sd(values: np.ndarray) -> float:
    low, high = np.quantile(values, [0.16, 0.84])
    return max(float(high - low) / 2.0, 1e-4)


def _skew(values: np.ndarray) -> float:
    low, middle, high = np.quantile(values, [0.01, 0.5, 0.99])
    return float(high + low - 2.0 * middle) or 1.0
