"""explain: the whole answer to "why", from one program and its distribution. Seconds, and shares of the critical path.

- Breakdown of the mean step for an average GPU. Busy time is averaged over pipeline stages. What remains of the noise-free
  step is bubble; what transfers between stages add to it is exposed pp communication. What randomness adds is waiting for
  stragglers, except for stalls of the whole step. For power, compute is split by kernel class by the noise-free cost of all
  chunks, and what it loses to communication beside it (multiprocessors, memory bandwidth) stands alone: then fewer products
  are made, and less is drawn.
- Criticality by autodiff: how much of the slowest replica's step each class of work accounts for. A step is a maximum of sums
  of durations, so it is homogeneous of degree one in them and Euler's theorem gives `step = sum_k seconds_k  d step / d
  seconds_k`. The gradient is one on the critical path of a draw and zero off it; averaged over draws, weighted by the
  probability that a column is the slowest of its step, `w F(t)^(n-1)`, the terms are the expected seconds of each class on
  the critical path.
- Whose variability owns the p95: remove one owner's at a time. The same draws (common random numbers) and the same compiled
  code serve every removal, so differences of a few tenths of a percent are visible with a few hundred columns. Effects need
  not add up.
- Op-by-op timelines of the slowest replica of a typical and of a slow step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..core.kernels import COMM_AXES, KERNEL_CLASSES, NETWORK_AXES
from ..cost.step import step_cost
from ..graph.propagate import GraphArrays, Trail
from ..job.job import Job
from ..result.distribution import StepTimeDistribution
from ..simulate.allocation import allocation_spread
from ..simulate.columns import Chunk, ColumnInputs, one_chunk, trail_of_chunk
from ..simulate.inputs import column_inputs, regime_factors, unit_step
from ..simulate.predict import DEFAULT_COLUMNS, column_design, symmetric
from ..simulate.program import Program, by_class, factor_groups, lower, variant
from ..variability.families import CONSTANT
from ..variability.tree import Variability
from .types import Explanation, Timeline


def breakdown(program: Program, distribution: StepTimeDistribution) -> Mapping[str, float]:
    """Seconds by cause; keys in the order a reader wants them."""
    graph = program.graph
    parts = {"compute": float(graph.compute_s.sum() / graph.n_lane + graph.end_compute_s.mean())}
    for axis, value in zip(COMM_AXES, graph.comm_s.sum(axis=(0, 1)) / graph.n_lane, strict=True):
        parts[f"{axis}_comm"] = float(value)
    parts["dp_comm"] += float(graph.end_comm_s.mean())
    fixed = distribution.deterministic_s
    no_lag = eqx.tree_at(lambda a: a.lag_s, program.arrays, jnp.zeros_like(program.arrays.lag_s))
    parts["pp_comm"] = float(graph.send_s.sum() / graph.n_lane) + max(0.0, fixed - float(unit_step(no_lag)))
    parts["bubble"] = max(0.0, fixed - sum(parts.values()))
    parts["stalls"] = distribution.mean_s * (1.0 - 1.0 / (1.0 + _stall_fraction(program)))
    parts["waiting_for_stragglers"] = distribution.mean_s - parts["stalls"] - fixed
    return parts


def _stall_fraction(program: Program) -> float:
    n_devices = program.job.plan.n_devices
    return sum(stall.prob(n_devices) * stall.mean_fraction for stall in program.job.variability.stalls)


N_CRITICALITY_COLUMN = 64
AXIS_NAMES = {axis: f"{axis} communication" for axis in NETWORK_AXES} | {"end": "gradient and parameter exchange"}


def criticality(program: Program, key: Array) -> Mapping[str, float]:
    """Share of the critical path by class of work, largest first; sums to one."""
    design = column_design(program, N_CRITICALITY_COLUMN, 0)
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
        times = one_chunk(
            eqx.tree_at(lambda i: i.graph, inputs, scaled(inputs.graph, scale)), key, chunk, N_CRITICALITY_COLUMN
        )[0]
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


def p95_owners(program: Program, key: Array, p: float = 0.95) -> Mapping[str, float]:
    """Owner -> seconds by which the p-quantile falls without its variability, largest first."""
    whole = symmetric(program, key, DEFAULT_COLUMNS)
    removed = {
        name: symmetric(variant(program, other), key, DEFAULT_COLUMNS).quantile(p)
        for name, other in removals(program).items()
    }
    falls = {name: whole.quantile(p) - value for name, value in removed.items()}
    return dict(sorted(falls.items(), key=lambda item: -item[1]))


def removals(program: Program) -> Mapping[str, Variability]:
    """Trees with one owner's variability removed; only owners that vary and take time."""
    tree, trees = program.job.variability, {}
    grouped = [[program.classes[i] for i in group] for group in factor_groups(tree, program.classes)]
    loose = [[name] for name in program.classes if not any(name in group for group in grouped)]
    used = sorted({program.cost.collective_of.get(axis, "all_reduce") for axis in _used_axes(program)})
    for names in [*grouped, *loose, *([name] for name in used)]:
        if not all(tree.of(name).is_zero for name in names):
            trees["+".join(names)] = tree.without(*names)
    if tree.step.cv > 0:
        trees["step regime"] = replace(tree, step=CONSTANT)
    if any(stall.mean_fraction > 0 for stall in tree.stalls):
        trees["stalls"] = replace(tree, stalls=())
    return trees


def _used_axes(program: Program) -> list[str]:
    graph = program.graph
    seconds = [*graph.comm_s.sum(axis=(0, 1)), graph.lag_s.sum() + graph.send_s.sum(), graph.end_comm_s.sum()]
    return [axis for axis, value in zip(NETWORK_AXES, seconds, strict=True) if value > 0]


N_TIMELINE_COLUMN = 128


def timelines(program: Program, distribution: StepTimeDistribution, key: Array) -> list[Timeline]:
    """The median and the p99 step: the simulated replica columns whose end comes nearest to them."""
    design = column_design(program, N_TIMELINE_COLUMN, 1)
    inputs = column_inputs(program, regime_factors(program, np.zeros(1)))
    peak = jnp.asarray(design.peak_score[0], float) if program.has_persistent else None
    chunk = Chunk(jnp.zeros((), jnp.int32), peak)
    times, trail = _run(inputs, key, chunk)
    ends = np.asarray(times[0], dtype=np.float64)
    wanted = {"median step": distribution.quantile(0.5), "p99 step": distribution.quantile(0.99)}
    return [_timeline(program, title, trail, int(np.abs(ends - q).argmin()), ends) for title, q in wanted.items()]


@eqx.filter_jit
def _run(inputs: ColumnInputs, key: Array, chunk: Chunk) -> tuple[Array, Trail]:
    return one_chunk(inputs, key, chunk, N_TIMELINE_COLUMN), trail_of_chunk(inputs, key, chunk, N_TIMELINE_COLUMN)


def _timeline(program: Program, title: str, trail: Trail, column: int, ends: np.ndarray) -> Timeline:
    return Timeline(
        title=title,
        start_s=np.asarray(trail.start_s[..., column], dtype=np.float64),
        end_s=np.asarray(trail.end_s[..., column], dtype=np.float64),
        compute_s=np.asarray(trail.compute_s[..., column], dtype=np.float64),
        label=program.graph.op,
        labels=tuple([str(op) for op in program.graph.ops]),
        end_of_lane_s=np.asarray(trail.end_of_lane_s[..., column], dtype=np.float64),
        step_s=float(ends[column]),
    )


def power_phases(job: Job, breakdown_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase; they sum to those of `breakdown_s`.

    Args:
        job: what was predicted.
        breakdown_s: of `breakdown`, with `compute`.
    """
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    by_class = cost.compute_s.sum(axis=(0, 1))
    whole = float(by_class.sum())
    slowed = min(job.efficiency.overlap_slowdown * float(cost.hidden_comm_s.sum()), 0.9 * whole) / whole
    compute_s = breakdown_s["compute"]
    out = {"gemm": 0.0, "attention": 0.0, "memory": 0.0}
    for name, seconds in zip(cost.classes, by_class, strict=True):
        out[KERNEL_CLASSES.named(name).knob] += compute_s * (1.0 - slowed) * float(seconds) / whole
    rest = {name: seconds for name, seconds in breakdown_s.items() if name != "compute"}
    return out | {"slowed": compute_s * slowed} | rest


def explain(job: Job, distribution: StepTimeDistribution, *, key: Array) -> Explanation:
    """Breakdown, criticality, owners of the p95, and the spreads between and within allocations.

    Args:
        job: the job that was predicted.
        distribution: its prediction.
        key: typed PRNG key; independent of the one used for the distribution or not, as you like.
    """
    program = lower(job)
    return Explanation(
        breakdown_s=breakdown(program, distribution),
        criticality=criticality(program, jax.random.fold_in(key, 2)),
        p95_owner_s=p95_owners(program, jax.random.fold_in(key, 1)),
        allocation=allocation_spread(program, distribution, jax.random.fold_in(key, 3)),
    )
