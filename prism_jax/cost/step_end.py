"""What a stage does after its last backward pass: gradient reduction, optimizer, gathering of updated parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np

from ..partition.weights import StageWeights
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.transformer.spec import TransformerSpec
from ..workload.transformer.traffic import data_group
from .collective import Group, collective_s
from .efficiency import Efficiency
from .overlap import bucketed
from .sharded import gradient_bytes, weight_bytes
from .step_cost import Array

# HBM traffic per parameter of mixed-precision Adam: gradient 4, master weight and two moments in and out 24, 16-bit weight 2;
# gradient norm reads 4, zeroing writes 4. Source: states as in ZeRO (arXiv 1910.02054 section 3.1).
OPTIMIZER_BYTES = 38.0


class EndWork(NamedTuple):
    """What a stage has to do after its last backward pass, nothing beside it; arrays have axes [*plan, stage].

    Attributes:
        reduce_s, gather_s: gradient reduction and gathering of updated parameters.
        embedding_s: sum of a tied embedding's gradients with the other stage that holds a copy.
        optimizer_s: update of the parameters, memory-bound, and what a step waits on top.
        n_bucket: buckets in which reduction and gathering run beside the passes; 0 if they do not.
    """

    reduce_s: Array
    gather_s: Array
    embedding_s: Array
    optimizer_s: Array
    n_bucket: Array


@dataclass(frozen=True)
class StageEnd:
    """Seconds after the last backward pass of a stage [*plan, stage]."""

    compute_s: Array
    exposed_s: Array
    hidden_s: Array


def end_work(
    model: TransformerSpec,
    cluster: Cluster,
    plan: ParallelPlan,
    weights: StageWeights,
    held: tuple[int, ...],
    eff: Efficiency,
) -> EndWork:
    """Work of the stage that holds the chunks `held`."""
    factor, _ = eff.fix.comm(Group.of(cluster, *data_group(plan)).n_node > 1)
    update_s = OPTIMIZER_BYTES * _updated(plan, weights) / (cluster.device.hbm_bytes_per_s * eff.memory)
    idle_s = eff.fix.step_s + eff.fix.network_step_s * log2(max(cluster.n_devices / cluster.node_size, 1.0))
    shares_embedding = model.tied_embeddings and plan.pp > 1 and (0 in held or plan.n_chunk - 1 in held)
    return EndWork(
        np.asarray(_reduction_s(cluster, plan, weights) * factor),
        np.asarray(_gathering_s(cluster, plan, weights) * factor),
        np.asarray(_embedding_s(model, cluster, plan) * factor if shares_embedding else 0.0),
        np.asarray(update_s * eff.fix.optimizer + idle_s),
        np.asarray(weights.count // plan.grad_bucket if plan.overlap.dp else 0.0),
    )


def stage_end(work: EndWork, backward_s: Array, forward_s: Array, eff: Efficiency, xp: Any = np) -> StageEnd:
    """What of it shows.

    Args:
        backward_s, forward_s: [*plan, stage] of one micro-batch through all chunks of the stage: what reductions (of the last
            micro-batch) and gatherings (before the first of the next step) hide behind.
    """
    reduced = bucketed(work.reduce_s, backward_s, work.n_bucket, eff.fix.hidden, xp)
    gathered = bucketed(work.gather_s, forward_s, work.n_bucket, eff.fix.hidden, xp)
    hidden = reduced.hidden_s + gathered.hidden_s
    exposed = reduced.exposed_s + gathered.exposed_s + eff.overlap_slowdown * hidden + work.embedding_s
    return StageEnd(work.optimizer_s, exposed, hidden)


def _updated(plan: ParallelPlan, weights: StageWeights) -> float:
    """Parameters one device updates."""
    if plan.shard_group > 1:
        return weights.sharded_parameters(plan)
    return weights.sharded_states(plan) if plan.zero_stage >= 1 else weights.count


def _reduction_s(cluster: Cluster, plan: ParallelPlan, weights: StageWeights) -> float:
    """All-reduce of gradients, or reduce-scatter if the optimizer is sharded; HSDP: between copies of the sharding group."""
    stride, _ = data_group(plan)
    wide = gradient_bytes(plan)
    if plan.shard_group > 1:
        between = plan.dp // plan.shard_group * plan.cp
        n_bytes = wide * weights.sharded_parameters(plan)
        return collective_s("all_reduce", n_bytes, cluster, stride * plan.shard_group, between).seconds
    kind = "reduce_scatter" if plan.zero_stage >= 1 else "all_reduce"
    return _in_buckets(kind, wide, cluster, plan, weights)


def _gathering_s(cluster: Cluster, plan: ParallelPlan, weights: StageWeights) -> float:
    """Updated parameters back to every rank (ZeRO-1 and 2)."""
    if plan.shard_group > 1 or plan.zero_stage == 0:
        return 0.0
    return _in_buckets("all_gather", weight_bytes(plan), cluster, plan, weights)


def _in_buckets(kind: str, wide: float, cluster: Cluster, plan: ParallelPlan, weights: StageWeights) -> float:
    """Dense and expert parameters of `wide` bytes, one collective per bucket; without overlap all in one."""
    stride, size = data_group(plan)
    groups = (
        (weights.dense, stride, size),
        (weights.expert, stride * plan.ep, max(size // plan.ep, 1)),
    )
    total = 0.0
    for count, apart, members in groups:
        n = max(1, ceil(count / plan.grad_bucket)) if plan.overlap.dp else 1
        total += n * collective_s(kind, wide * count / n, cluster, apart, members).seconds
    return total


def _embedding_s(model: TransformerSpec, cluster: Cluster, plan: ParallelPlan) -> float:
    """Gradients of the tied embedding are added between the first and the last stage."""
    n_bytes = gradient_bytes(plan) * model.vocab * model.hidden / plan.tp
    return collective_s("all_reduce", n_bytes, cluster, plan.stride("pp") * (plan.pp - 1), 2).seconds
