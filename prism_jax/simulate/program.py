"""Program: a job lowered to arrays, the one place where the host's graph meets the device's code.

Kernel classes that vary between GPUs in the same way share one factor; a class that does not vary joins the constant part.
Residuals of an op's classes are one residual: its standard deviation exact per op, its shape that of the job's mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from ..core.arrays import Floats, Values, namespace
from ..core.kernels import COMM_AXES, COMPUTE_CLASSES, NETWORK_AXES
from ..cost.step import StepCost, step_cost
from ..graph.build import build_graph
from ..graph.draws import N_CALL_KNOTS, ScoreChain, family_chain, map_sd, on_host, residual_map, standardised
from ..graph.propagate import GraphArrays
from ..graph.step_graph import MIN_DEPTH, StepGraph, pad_graph, padded, ring_rows
from ..job.job import Job
from ..plan.plan import ParallelPlan
from ..schedule.order import ScheduleOrder
from ..schedule.registry import make_schedule
from ..variability.families import CONSTANT, Family
from ..variability.score_map import combine
from ..variability.tree import Variability
from .work import Work, work_of


@dataclass(frozen=True)
class CallResidual:
    """Standard deviation over mean, per op or one number, and the common shape."""

    sd: Floats
    chain: ScoreChain | None


def call_residuals(
    tree: Variability, cost: StepCost, graph: StepGraph
) -> tuple[CallResidual, CallResidual, CallResidual]:
    """Residual of compute [level, lane], of communication inside ops [level, lane], and of transfers between stages."""
    compute = _mixed_residual(compute_families(tree, cost), graph.compute_s)
    *axes, transfer = comm_families(tree, cost)
    lag = np.where(graph.dep_level >= 0, graph.lag_s, 0.0).sum(axis=-1)
    seconds = np.concatenate([graph.comm_s, np.stack([graph.send_s, lag], axis=-1)], axis=-1)
    comm = _mixed_residual([*axes, transfer, transfer], seconds, skip_last=True)
    p2p_sd = np.asarray(map_sd(residual_map(transfer)) if transfer.cv > 0 and lag.any() else 0.0)
    return compute, comm, CallResidual(p2p_sd, comm.chain)


def compute_families(tree: Variability, cost: StepCost) -> list[Family]:
    """Residual families of the compute classes."""
    return [tree.of(name).call for name in cost.classes]


def comm_families(tree: Variability, cost: StepCost) -> list[Family]:
    """Residual families of the axes that communicate inside ops, and of transfers between stages."""
    axes = [tree.of(cost.collective_of.get(axis, "all_reduce")).call for axis in COMM_AXES]
    return [*axes, tree.of(cost.collective_of["pp"]).call]


def op_sd(families: list[Family], seconds: Values) -> Values:
    """Standard deviation over mean of `sum_c seconds_c X_c`, [level, lane]; seconds [level, lane, class] may be traced."""
    xp = namespace(seconds)
    total = seconds.sum(axis=-1)
    variance = ((seconds * _sds(families)[None, None]) ** 2).sum(axis=-1)
    sd_s = xp.sqrt(xp.where(variance > 0.0, variance, 1.0))  # the root of zero has no derivative
    return xp.where(variance > 0.0, sd_s, 0.0) / xp.where(total > 0.0, total, 1.0)


def _sds(families: list[Family]) -> Floats:
    """Standard deviation over mean of one call, [class]."""
    return np.array([map_sd(residual_map(f)) if f.cv > 0 else 0.0 for f in families])


def _mixed_residual(families: list[Family], seconds: Floats, *, skip_last: bool = False) -> CallResidual:
    """Residual of `sum_c seconds_c X_c`; `skip_last` lets the last part shape the residual without adding to an op's sd."""
    own = slice(None, -1) if skip_last else slice(None)
    sds = _sds(families)
    sd = op_sd(families[own], seconds[..., own])
    share = seconds.sum(axis=(0, 1))
    varying = [(f, s) for f, s, w in zip(families, share, sds, strict=True) if s > 0 and w > 0]
    if not varying:
        return CallResidual(np.zeros_like(sd), None)
    if len(varying) == 1 or all(f.is_normal for f, _ in varying):
        shape = residual_map(varying[0][0])
    else:
        rest = 1.0 - sum(s for _, s in varying) / share.sum()
        weights = [s / share.sum() for _, s in varying]
        shape = combine([*(f for f, _ in varying), CONSTANT], [*weights, max(rest, 0.0)], N_CALL_KNOTS)
    return CallResidual(sd, standardised(shape))


@dataclass(frozen=True, eq=False)
class Program:
    """Job, lowered to everything that `predict` needs.

    Attributes:
        job, cost, graph: the job with its cost and graph; the graph is padded if asked for.
        n_stage: lanes that are stages; a padded graph has idle ones behind them.
        n_used: levels that a padded graph runs; None where nothing is padded.
        arrays: the graph on the device, one factor per group of kernel classes.
        gpu, node: per factor, persistent chains.
        link: per network axis, chain of the group's worst link score.
        compute_residual, comm_residual: standardised call residuals, None where nothing varies.
        regime: per network axis, factor family of the step's network score.
        end_call: residual family of the communication that ends the step.
        varying_links, varying_regime: whether the original tree has them; fixed under `variant`.
        work: parts that depend on the work of micro-batches; None where they are alike.
    """

    job: Job
    cost: StepCost
    graph: StepGraph
    n_stage: int
    n_used: int | None
    arrays: GraphArrays
    gpu: tuple[ScoreChain, ...]
    node: tuple[ScoreChain, ...]
    link: tuple[ScoreChain, ...]
    compute_residual: ScoreChain | None
    comm_residual: ScoreChain | None
    regime: tuple[Family, ...]
    end_call: Family
    varying_links: bool
    varying_regime: bool
    work: Work | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the compute classes, along the last axis of the graph's compute."""
        return self.cost.classes

    @property
    def n_lane(self) -> int:
        """Number of lanes, idle ones included."""
        return self.graph.n_lane

    @property
    def n_member(self) -> int:
        """GPUs of a lane that synchronise inside every op."""
        return self.job.plan.n_member

    @property
    def n_replica(self) -> int:
        """Columns that meet at the end of the step."""
        return self.job.plan.n_replica

    @property
    def n_node(self) -> int:
        """Hosts that a member group spans."""
        return max(1, -(-self.n_member // self.job.cluster.node_size))

    @property
    def dtype(self) -> np.dtype:
        """Precision of the draws."""
        return np.dtype(self.arrays.compute_s.dtype)

    @property
    def has_persistent(self) -> bool:
        """Whether anything differs between GPUs or nodes for the whole step."""
        return len(self.gpu) > 0


def lower(job: Job, pad: bool = False) -> Program:
    """The program of `job`; jobs are compared by content, so lowering an equal job again is free.

    Args:
        job: model, cluster, plan and variability.
        pad: pad the graph to a common shape: fewer compilations for a sweep over jobs, the same numbers, no derivatives.

    Raises:
        PlanError: the plan is impossible for the model or the cluster; value, constraint, remedy.
    """
    return lowered(job, pad, on_host(0.0).dtype)


@lru_cache(maxsize=32)
def lowered(job: Job, pad: bool, dtype: np.dtype) -> Program:
    """Returns the program of `job` in the precision `dtype`, which is that of JAX's own numbers now."""
    del dtype  # tells programs apart
    return program_of(job, *_noise_free(_Timed(replace(job, variability=Variability()).content, pad, job)))


@dataclass(frozen=True)
class _Timed:
    """A job as far as its noise-free step goes: equal to every other that differs in variability alone."""

    content: str
    pad: bool
    job: Job = field(compare=False)


@lru_cache(maxsize=8)
def _noise_free(timed: _Timed) -> tuple[StepCost, StepGraph, int | None, Work | None]:
    """Cost and graph, number of used levels of a padded one, and the parts that depend on the work of micro-batches."""
    job = timed.job
    job.check()
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    order = order_of(job.plan)
    graph, n_used = build_graph(order, cost), None
    if timed.pad:
        graph, n_used = pad_graph(graph), graph.n_level
    return cost, graph, n_used, work_of(job, cost, order, graph)


def order_of(plan: ParallelPlan) -> ScheduleOrder:
    """Order of the ops of every stage."""
    return make_schedule(plan.schedule, plan.pp, plan.n_micro_batch, plan.virtual_stages)


def program_of(
    job: Job,
    cost: StepCost,
    graph: StepGraph,
    n_used: int | None = None,
    work: Work | None = None,
    groups: Sequence[Sequence[int]] | None = None,
) -> Program:
    """Program of a graph under the job's variability.

    Args:
        n_used: levels of a padded graph that are run.
        work: of the micro-batches.
        groups: indices of compute classes that share a factor; None for `factor_groups`.
    """
    tree = job.variability
    groups = factor_groups(tree, cost.classes) if groups is None else groups
    compute, comm, p2p = call_residuals(tree, cost, graph)
    collectives = [tree.of(cost.collective_of.get(axis, "all_reduce")) for axis in NETWORK_AXES]
    factors = [tree.of(cost.classes[members[0]]) for members in groups]
    return Program(
        job=job,
        cost=cost,
        graph=graph,
        n_stage=len(cost.end_compute_s),
        n_used=n_used,
        arrays=graph_arrays(graph, groups, compute.sd, comm.sd, p2p.sd, n_used),
        gpu=tuple(family_chain(own.gpu) for own in factors),
        node=tuple(family_chain(own.node) for own in factors),
        link=tuple(family_chain(own.node) for own in collectives),
        compute_residual=compute.chain,
        comm_residual=comm.chain,
        regime=tuple(own.regime for own in collectives),
        end_call=collectives[-1].call,
        varying_links=any(own.node.cv > 0 for own in collectives),
        varying_regime=any(own.regime.cv > 0 for own in collectives),
        work=work,
    )


def factor_groups(tree: Variability, classes: Sequence[str]) -> list[list[int]]:
    """Indices of those of the compute classes that share one persistent factor; those without one are left out."""
    groups: dict[tuple[Family, Family], list[int]] = {}
    for index, name in enumerate(classes):
        node = tree.of(name)
        if node.gpu.cv > 0 or node.node.cv > 0:
            groups.setdefault((node.gpu, node.node), []).append(index)
    return list(groups.values())


def graph_arrays(
    graph: StepGraph,
    groups: Sequence[Sequence[int]],
    call_sd: Floats,
    comm_sd: Floats,
    p2p_sd: Floats,
    n_used: int | None,
) -> GraphArrays:
    """StepGraph in the form that the engine takes, made by the host; `n_used` levels of a padded one."""
    depth = graph.ring_depth if n_used is None else padded(graph.ring_depth, MIN_DEPTH, 2)
    comm_s = np.concatenate([graph.comm_s, graph.send_s[..., None]], axis=-1)
    used = np.flatnonzero(comm_s.any(axis=(0, 1))) if n_used is None else range(comm_s.shape[-1])
    axes = tuple(int(a) for a in used)
    return GraphArrays(
        compute_s=on_host(by_factor(graph.compute_s, groups)),
        call_sd=on_host(call_sd),
        comm_s=on_host(comm_s[..., list(axes)]),
        comm_sd=on_host(comm_sd),
        p2p_sd=on_host(p2p_sd),
        dep=ring_rows(graph.dep_level, graph.dep_lane, depth),
        lag_s=on_host(graph.lag_s),
        end_compute_s=on_host(by_factor(end_by_class(graph.end_compute_s, graph.compute_s.shape[-1]), groups)),
        end_comm_s=on_host(graph.end_comm_s),
        n_used=None if n_used is None else np.asarray(n_used, np.int32),
        depth=depth,
        axes=axes,
    )


def variant(program: Program, tree: Variability) -> Program:
    """Returns the same program under a tree with less variability: same shapes and draws, so nothing is compiled again.

    `tree` may only set whole factor groups of the original constant, not split them.
    """
    found = _under(program, tree, factor_groups(program.job.variability, program.classes))
    chains = {name: zip(getattr(found, name), getattr(program, name), strict=True) for name in ("gpu", "node", "link")}
    same = {name: tuple(own.lengthened(len(old.knots)) for own, old in both) for name, both in chains.items()}
    return replace(found, **same)


def by_class(program: Program, tree: Variability | None = None) -> Program:
    """Returns the same program with every compute class as a factor of its own, constant or not.

    Args:
        tree: with less variability than the job's; None for the job's own.
    """
    groups = [[index] for index in range(len(program.classes))]
    return _under(program, program.job.variability if tree is None else tree, groups)


def _under(program: Program, tree: Variability, groups: Sequence[Sequence[int]]) -> Program:
    """Returns the same program under another tree; the shapes of residuals, and what varies at all, stay."""
    job = replace(program.job, variability=tree)
    found = program_of(job, program.cost, program.graph, program.n_used, program.work, groups)
    stays = ("compute_residual", "comm_residual", "varying_links", "varying_regime")
    return replace(found, **{name: getattr(program, name) for name in stays})


def end_by_class(end_compute_s: Values, n_class: int) -> Values:
    """Work after the last op per compute class [lane, compute_class]: the optimizer is memory-bound."""
    is_memory = (np.arange(n_class) == COMPUTE_CLASSES.index("memory")).astype(float)
    return end_compute_s[:, None] * is_memory[None]


def by_factor(compute_s: Values, groups: Sequence[Sequence[int]]) -> Values:
    """[..., compute_class] -> [..., factor + 1], the last being the sum of classes that do not vary between GPUs."""
    used = {index for members in groups for index in members}
    rest = [index for index in range(compute_s.shape[-1]) if index not in used]
    chosen = [np.array(members, dtype=int) for members in [*groups, rest]]
    return namespace(compute_s).stack([compute_s[..., own].sum(axis=-1) for own in chosen], axis=-1)
