"""Which work lies on the critical path: how much of the slowest replica's step each class of it accounts for, by autodiff.

A step is a maximum of sums of durations, so it is homogeneous of degree one in them and Euler's theorem gives
`step = sum_k seconds_k  d step / d seconds_k`. The gradient is one on the critical path of a draw and zero off it; averaged over
draws, weighted by the probability that a column is the slowest of its step, the terms are the expected seconds of each class on
the critical path. With n replicas that are alike, and known ones r,

    P(column i is the slowest) ~ w_i F(t_i)^(n-1) prod_r F_r(t_i)      P(column j of r) ~ F(t_j)^n prod_(other) F_other(t_j) / m
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..core.arrays import Floats
from ..core.kernels import NETWORK_AXES
from ..graph.propagate import GraphArrays
from ..simulate.columns import Chunk, ColumnInputs, one_chunk
from ..simulate.importance import Design
from ..simulate.inputs import column_inputs, regime_factors
from ..simulate.known_replicas import key_of_known
from ..simulate.predict import ReplicaTimes, column_design
from ..simulate.program import Program, by_class
from .types import Shares

N_CRITICALITY_COLUMN = 64
AXIS_NAMES = {axis: f"{axis} communication" for axis in NETWORK_AXES} | {"end": "gradient and parameter exchange"}


def criticality(program: Program, key: Array, times: ReplicaTimes | None = None) -> Shares:
    """Share of the critical path by class of work; sums to one.

    Args:
        program: lowered job.
        key: typed PRNG key.
        times: with known GPUs, columns of all replicas that may be the slowest.
    """
    design, chunk = first_columns(program, N_CRITICALITY_COLUMN, 0)
    inputs = column_inputs(by_class(program), regime_factors(program, np.zeros(1)))
    time_s, seconds = (np.asarray(part, dtype=np.float64) for part in _column_seconds(inputs, key, chunk))
    n_alike = program.n_replica if times is None else times.n_alike
    groups = [ColumnGroup(time_s, seconds, np.asarray(design.weight[0], dtype=np.float64), n_alike)]
    n_group = N_PART
    if times is not None and times.known is not None and len(times.known.replicas):
        groups = [*(groups if n_alike else []), *_known_groups(program, key, times)]
    names = [*program.classes, "optimizer", *(AXIS_NAMES[NETWORK_AXES[a]] for a in inputs.graph.axes)]
    names += [AXIS_NAMES["pp"], AXIS_NAMES["end"]]
    whole = _by_name(names, critical_seconds(groups))
    parts = [_by_name(names, critical_seconds([own.part(k, n_group) for own in groups])) for k in range(n_group)]
    kept = sorted((name for name, value in whole.items() if value > 0), key=lambda name: -whole[name])
    errors = {name: float(np.std([part[name] for part in parts], ddof=1) / np.sqrt(n_group)) for name in kept}
    return Shares({name: whole[name] for name in kept}, errors)


N_PART = 4  # of the columns, whose scatter is the error
MOST_CRITICAL_REPLICAS = 32  # with known GPUs: those most often the slowest


@dataclass(frozen=True, eq=False)
class ColumnGroup:
    """Columns of replicas that are alike.

    Attributes:
        time_s: [column] step times.
        seconds: [column, class] on the critical path of each.
        weight: [column] importance weights.
        n: replicas of this kind.
    """

    time_s: Floats
    seconds: Floats
    weight: Floats
    n: int

    def part(self, k: int, n_part: int) -> ColumnGroup:
        """Every `n_part`-th column from `k` on."""
        own = slice(k, None, n_part)
        return replace(self, time_s=self.time_s[own], seconds=self.seconds[own], weight=self.weight[own])


def critical_seconds(groups: Sequence[ColumnGroup]) -> Floats:
    """Seconds of each class [class] on the slowest replica's critical path, expected."""
    weights = slowest_weights([(own.time_s, own.weight, own.n) for own in groups])
    found = np.zeros(groups[0].seconds.shape[1])
    for own, weight in zip(groups, weights, strict=True):
        found += weight @ own.seconds
    return found


def _by_name(names: Sequence[str], seconds: Floats) -> dict[str, float]:
    """Shares by name; entries of one name are one."""
    shares: dict[str, float] = {}
    for name, value in zip(names, seconds / seconds.sum(), strict=True):
        shares[name] = shares.get(name, 0.0) + float(value)
    return shares


def _known_groups(program: Program, key: Array, times: ReplicaTimes) -> list[ColumnGroup]:
    """Columns of the known replicas that are most often the slowest, a group each."""
    assert times.known is not None
    middle_s = times.known_s[:, len(times.columns.scores) // 2]
    weights = slowest_weights([(own_s, np.ones(own_s.size), 1) for own_s in middle_s])
    chance = np.array([own.sum() for own in weights])
    most = np.sort(np.argsort(-chance)[:MOST_CRITICAL_REPLICAS])
    own = replace(times.known.only(times.known.replicas[most]), n_column=N_CRITICALITY_COLUMN)
    chunks, _ = own.chunks(program.job.plan)
    inputs = column_inputs(by_class(program), regime_factors(program, np.zeros(1)), explicit=True)
    groups = []
    for k in range(len(most)):
        chunk = jax.tree.map(lambda leaf, k=k: leaf[k], chunks)
        found = _column_seconds(inputs, key_of_known(key), chunk)
        time_s, seconds = (np.asarray(part, dtype=np.float64) for part in found)
        groups.append(ColumnGroup(time_s, seconds, np.ones(time_s.size), 1))
    return groups


def first_columns(program: Program, n_column: int, seed: int) -> tuple[Design, Chunk]:
    """Importance-sampled columns, and the chunk of the first randomisation."""
    design = column_design(program, n_column, seed)
    peak = jnp.asarray(design.peak_score[0], float) if program.has_persistent else None
    return design, Chunk(jnp.zeros((), jnp.int32), peak)


@eqx.filter_jit
def _column_seconds(inputs: ColumnInputs, key: Array, chunk: Chunk) -> tuple[Array, Array]:
    """Step times [column] and the seconds of each class [column, class] on every column's critical path.

    One scale per class, all at one: the derivative of the step in a scale is that class's critical seconds. There
    are few scales and thousands of durations behind each, so forward mode is the cheap direction.
    """
    n_scale = inputs.graph.compute_s.shape[-1] + len(inputs.graph.axes) + 2

    def times(scale: Array) -> tuple[Array, Array]:
        graph = scaled(inputs.graph, scale)
        found = one_chunk(eqx.tree_at(lambda i: i.graph, inputs, graph), key, chunk, N_CRITICALITY_COLUMN)[0]
        return found, found

    seconds, time_s = jax.jacfwd(times, has_aux=True)(jnp.ones(n_scale, inputs.graph.compute_s.dtype))
    return time_s, seconds


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


def slowest_weights(groups: Sequence[tuple[Floats, Floats, int]]) -> list[Floats]:
    """Probability that each column is the slowest of its step; all sum to one.

    Args:
        groups: times [column], importance weights [column], and the number of replicas of every kind.

    Notes: a column is the slowest where all others of its kind, and all replicas of other kinds, are faster.
    """
    logs = []
    tables = [_log_below(time_s, weight) for time_s, weight, _ in groups]
    for k, (time_s, weight, _) in enumerate(groups):
        own = np.log(np.maximum(weight / weight.sum(), SMALLEST_PROB))
        for other, ((at_s, log_below), (_, _, n)) in enumerate(zip(tables, groups, strict=True)):
            count = n - (other == k)
            own = own + count * np.interp(time_s, at_s, log_below, left=np.log(SMALLEST_PROB), right=0.0)
        logs.append(own + np.log(max(groups[k][2], SMALLEST_PROB)))
    top = max(own.max() for own in logs)
    total = sum(np.exp(own - top).sum() for own in logs)
    return [np.exp(own - top) / total for own in logs]


SMALLEST_PROB = 1e-12


def _log_below(time_s: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Increasing times, and the log of the probability that a column is below each: at mid-weights."""
    order = np.argsort(time_s)
    mass = weight[order] / weight.sum()
    return time_s[order], np.log(np.maximum(np.cumsum(mass) - 0.5 * mass, SMALLEST_PROB))
