"""Criticality by autodiff: how much of the slowest replica's step each class of work accounts for.

A step is a maximum of sums of durations, so it is homogeneous of degree one in them and Euler's theorem gives

    step = sum_k seconds_k  d step / d seconds_k

The gradient is one on the critical path of a draw and zero off it; averaged over draws, weighted by the probability
that a column is the slowest of its step, `w F(t)^(n-1)`, the terms are the expected seconds of each class on the
critical path.
"""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..graph.propagate import GraphArrays
from ..kernels import NETWORK_AXES
from ..simulate.columns import Chunk, ColumnInputs, one_chunk
from ..simulate.inputs import column_inputs, regime_factors
from ..simulate.predict import column_design
from ..simulate.program import Program, by_class

N_COLUMN = 64
AXIS_NAMES = {axis: f"{axis} communication" for axis in NETWORK_AXES} | {"end": "gradient and parameter exchange"}


def criticality(program: Program, key: Array) -> Mapping[str, float]:
    """Share of the critical path by class of work, largest first; sums to one."""
    design = column_design(program, N_COLUMN, 0)
    inputs = column_inputs(by_class(program), regime_factors(program, np.zeros(1)))
    peak = jnp.asarray(design.peak_score[0], float) if program.has_persistent else None
    chunk = Chunk(jnp.zeros((), jnp.int32), peak)
    weight = jnp.asarray(design.weight[0], float)
    seconds = np.asarray(_critical_seconds(inputs, key, chunk, weight, jnp.asarray(float(program.n_replica))))
    names = [*program.classes, "optimizer", *(AXIS_NAMES[NETWORK_AXES[a]] for a in inputs.graph.axes)]
    shares: dict[str, float] = {}
    for name, value in zip([*names, AXIS_NAMES["pp"], AXIS_NAMES["end"]], seconds / seconds.sum(), strict=True):
        shares[name] = shares.get(name, 0.0) + float(value)
    return dict(sorted(((n, v) for n, v in shares.items() if v > 0), key=lambda item: -item[1]))


@eqx.filter_jit
def _critical_seconds(inputs: ColumnInputs, key: Array, chunk: Chunk, weight: Array, n: Array) -> Array:
    """Mean seconds of each class on the slowest replica's critical path.

    One scale per class, all at one: the derivative of the step in a scale is that class's critical seconds. There
    are few scales and thousands of durations behind each, so forward mode is the cheap direction.
    """
    n_scale = inputs.graph.compute_s.shape[-1] + len(inputs.graph.axes) + 2

    def mean_time(scale: Array) -> Array:
        times = one_chunk(eqx.tree_at(lambda i: i.graph, inputs, scaled(inputs.graph, scale)), key, chunk, N_COLUMN)[0]
        return times @ jax.lax.stop_gradient(slowest_weight(times, weight, n))

    return jax.jacfwd(mean_time)(jnp.ones(n_scale, weight.dtype))


def scaled(graph: GraphArrays, scale: Array) -> GraphArrays:
    """The graph with every class of seconds times its scale: compute classes, optimizer, used axes, transfers, end of step."""
    n_class = graph.compute_s.shape[-1] - 1  # the last is what does not vary
    compute = jnp.append(scale[:n_class], 1.0)[None, None]
    axes, lag, end = scale[None, None, n_class + 1 : -2], scale[-2], scale[-1]
    return eqx.tree_at(
        lambda g: (g.compute_s, g.end_compute_s, g.comm_s, g.lag_s, g.end_comm_s),
        graph,
        (
            graph.compute_s * compute,
            graph.end_compute_s * scale[n_class],
            graph.comm_s * axes,
            graph.lag_s * lag,
            graph.end_comm_s * end,
        ),
    )


def slowest_weight(time_s: Array, weight: Array, n_replica: Array) -> Array:
    """Probability that each column is the slowest of its step, from importance weights; sums to one."""
    order = jnp.argsort(time_s)
    mass = weight[order] / weight.sum()
    below = jnp.cumsum(mass) - 0.5 * mass
    log_weight = jnp.log(mass) + (n_replica - 1.0) * jnp.log(jnp.maximum(below, 1e-12))
    share = jax.nn.softmax(log_weight)
    return jnp.zeros_like(share).at[order].set(share)
