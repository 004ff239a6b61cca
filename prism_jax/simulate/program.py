"""Program: a job lowered to arrays, the one place where the host's graph meets the device's code.

Kernel classes that vary between GPUs in the same way share one factor; a class that does not vary joins the constant part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import jax.numpy as jnp
import numpy as np

from .._core.arrays import Values, namespace
from .._typing import Floats
from ..cost.step import step_cost
from ..cost.step_cost import StepCost
from ..graph.build import build_graph
from ..graph.pad import pad_graph, padded_depth
from ..graph.propagate import GraphArrays
from ..graph.score import ScoreChain, family_chain
from ..graph.step_graph import StepGraph, ring_rows
from ..job import Job
from ..kernels import COMPUTE_CLASSES, NETWORK_AXES
from ..plan.plan import ParallelPlan
from ..schedule import ScheduleOrder, make_schedule
from ..variability.families import Family
from ..variability.tree import Variability
from .residuals import call_residuals


@dataclass(frozen=True, eq=False)
class Program:
    """Everything `predict` needs of a job.

    Attributes:
        job, cost, graph: what was lowered; the graph is padded if asked for.
        n_stage: lanes that are stages; a padded graph has idle ones behind them.
        n_used: levels that a padded graph runs; None where nothing is padded.
        arrays: the graph on the device, one factor per group of kernel classes.
        gpu, node: per factor, persistent chains.
        link: per network axis, chain of the group's worst link score.
        compute_residual, comm_residual: standardised call residuals, None where nothing varies.
        regime: per network axis, factor family of the step's network score.
        end_call: residual family of the communication that ends the step.
        varying_links, varying_regime: whether the original tree has them; fixed under `variant`.
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

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the compute classes, along the last axis of the graph's compute."""
        return self.cost.classes

    @property
    def n_lane(self) -> int:
        """Lanes, idle ones included."""
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
    def has_persistent(self) -> bool:
        """Whether anything differs between GPUs or nodes for the whole step."""
        return len(self.gpu) > 0


@lru_cache(maxsize=32)
def lower(job: Job, pad: bool = False) -> Program:
    """The program of `job`; jobs are compared by content, so lowering an equal job again is free.

    Args:
        job: model, cluster, plan and variability.
        pad: pad the graph to a common shape: fewer compilations for a sweep over jobs, the same numbers, no derivatives.

    Raises:
        PlanError: the plan is impossible for the model or the cluster; value, constraint, remedy.
    """
    job.check()
    plan = job.plan
    cost = step_cost(job.model, job.cluster, plan, job.efficiency)
    return program_of(job, cost, build_graph(order_of(plan), cost), pad=pad)


def order_of(plan: ParallelPlan) -> ScheduleOrder:
    """Order of the ops of every stage."""
    return make_schedule(plan.schedule, plan.pp, plan.n_micro_batch, plan.virtual_stages)


def program_of(job: Job, cost: StepCost, graph: StepGraph, *, pad: bool = False) -> Program:
    """Program of a graph under the job's variability."""
    stages = graph.n_lane
    n_used = graph.n_level if pad else None
    graph = pad_graph(graph) if pad else graph
    tree = job.variability
    groups = factor_groups(tree, cost.classes)
    compute, comm, p2p = call_residuals(tree, cost, graph)
    collectives = [cost.collective_of.get(axis, "all_reduce") for axis in NETWORK_AXES]
    factors = [tree.of(cost.classes[members[0]]) for members in groups]
    return Program(
        job=job,
        cost=cost,
        graph=graph,
        n_stage=stages,
        n_used=n_used,
        arrays=graph_arrays(graph, groups, compute.sd, comm.sd, p2p.sd, n_used),
        gpu=tuple(family_chain(f.gpu) for f in factors),
        node=tuple(family_chain(f.node) for f in factors),
        link=tuple(family_chain(tree.of(c).node) for c in collectives),
        compute_residual=compute.chain,
        comm_residual=comm.chain,
        regime=tuple(tree.of(c).regime for c in collectives),
        end_call=tree.of(cost.collective_of["end"]).call,
        varying_links=any(tree.of(c).node.cv > 0 for c in collectives),
        varying_regime=any(tree.of(c).regime.cv > 0 for c in collectives),
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
    graph: StepGraph, groups: list[list[int]], call_sd: Floats, comm_sd: Floats, p2p_sd: Floats, n_used: int | None
) -> GraphArrays:
    """StepGraph in device form; `n_used` levels of a padded one."""
    depth = graph.ring_depth if n_used is None else padded_depth(graph.ring_depth)
    comm_s = np.concatenate([graph.comm_s, graph.send_s[..., None]], axis=-1)
    used = np.flatnonzero(comm_s.any(axis=(0, 1))) if n_used is None else range(comm_s.shape[-1])
    axes = tuple(int(a) for a in used)
    return GraphArrays(
        compute_s=jnp.asarray(by_factor(graph.compute_s, groups), float),
        call_sd=jnp.asarray(call_sd, float),
        comm_s=jnp.asarray(comm_s[..., list(axes)], float),
        comm_sd=jnp.asarray(comm_sd, float),
        p2p_sd=jnp.asarray(p2p_sd, float),
        dep=jnp.asarray(ring_rows(graph.dep_level, graph.dep_lane, depth), jnp.int32),
        lag_s=jnp.asarray(graph.lag_s, float),
        end_compute_s=jnp.asarray(
            by_factor(end_by_class(graph.end_compute_s, graph.compute_s.shape[-1]), groups), float
        ),
        end_comm_s=jnp.asarray(graph.end_comm_s, float),
        n_used=None if n_used is None else jnp.asarray(n_used, jnp.int32),
        depth=depth,
        axes=axes,
    )


def variant(program: Program, tree: Variability) -> Program:
    """The same program under a tree with less variability: same shapes and draws, so nothing is compiled again.

    `tree` may only set whole factor groups of the original constant, not split them.
    """
    groups = factor_groups(program.job.variability, program.classes)
    compute, comm, p2p = call_residuals(tree, program.cost, program.graph)
    collectives = [program.cost.collective_of.get(axis, "all_reduce") for axis in NETWORK_AXES]
    factors = [tree.of(program.classes[members[0]]) for members in groups]
    old = [*zip(factors, program.gpu, program.node, strict=True)]
    return replace(
        program,
        job=replace(program.job, variability=tree),
        arrays=graph_arrays(program.graph, groups, compute.sd, comm.sd, p2p.sd, program.n_used),
        gpu=tuple(family_chain(f.gpu, len(gpu.knots)) for f, gpu, _ in old),
        node=tuple(family_chain(f.node, len(node.knots)) for f, _, node in old),
        link=tuple(
            family_chain(tree.of(c).node, len(link.knots)) for c, link in zip(collectives, program.link, strict=True)
        ),
        regime=tuple(tree.of(c).regime for c in collectives),
        end_call=tree.of(program.cost.collective_of["end"]).call,
    )


def by_class(program: Program) -> Program:
    """The same program with every compute class as a factor of its own, constant or not."""
    tree = program.job.variability
    groups = [[index] for index in range(len(program.classes))]
    compute, comm, p2p = call_residuals(tree, program.cost, program.graph)
    return replace(
        program,
        arrays=graph_arrays(program.graph, groups, compute.sd, comm.sd, p2p.sd, program.n_used),
        gpu=tuple(family_chain(tree.of(name).gpu) for name in program.classes),
        node=tuple(family_chain(tree.of(name).node) for name in program.classes),
    )


def end_by_class(end_compute_s: Values, n_class: int) -> Values:
    """Work after the last op per compute class [lane, compute_class]: the optimizer is memory-bound."""
    is_memory = (np.arange(n_class) == COMPUTE_CLASSES.index("memory")).astype(float)
    return end_compute_s[:, None] * is_memory[None]


def by_factor(compute_s: Values, groups: list[list[int]]) -> Values:
    """[..., compute_class] -> [..., factor + 1], the last being what does not vary between GPUs."""
    used = {index for members in groups for index in members}
    rest = [index for index in range(compute_s.shape[-1]) if index not in used]
    chosen = [np.array(members, dtype=int) for members in [*groups, rest]]
    return namespace(compute_s).stack([compute_s[..., own].sum(axis=-1) for own in chosen], axis=-1)
