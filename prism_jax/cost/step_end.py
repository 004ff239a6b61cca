"""What a stage does after its last backward pass: gradient reduction, optimizer, gathering of updated parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np

from .._core.arrays import Values, namespace
from .._typing import Floats
from ..partition.weights import StageWeights, sharded, state_ranks
from ..plan.plan import ParallelPlan
from ..plan.state_dtypes import ELEMENT_BYTES
from ..system.hardware import Cluster
from .communication import collective_s, crosses_nodes
from .efficiency import Efficiency
from .overlap import bucketed
from .sharded import gradient_bytes, weight_bytes


class EndWork(NamedTuple):
    """What a stage has to do after its last backward pass, nothing beside it; arrays have axes [*plan, stage].

    Attributes:
        reduce_s, gather_s: gradient reduction and gathering of updated parameters.
        embedding_s: sum of a tied embedding's gradients with the other stage that holds a copy.
        optimizer_s: update of the parameters, memory-bound, and what a step waits on top.
        n_bucket: buckets in which reduction and gathering run beside the passes; 0 if they do not.
    """

    reduce_s: Floats
    gather_s: Floats
    embedding_s: Floats
    optimizer_s: Floats
    n_bucket: Floats


@dataclass(frozen=True)
class StageEnd:
    """Seconds after the last backward pass of a stage [*plan, stage]."""

    compute_s: Floats
    exposed_s: Floats
    hidden_s: Floats


def end_work(cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights, eff: Efficiency) -> EndWork:
    """Work of a stage.

    Args:
        splits: [group] as in `partition.weights.group_splits`.
        weights: what the stage holds.
    """
    xp = namespace(cluster, eff)
    factor, _ = eff.correction.comm(crosses_nodes(cluster, *plan.data_group))
    update_s = optimizer_bytes(plan) * _updated(plan, splits, weights) / (cluster.device.hbm_bytes_per_s * eff.memory)
    idle_s = eff.correction.step_s + eff.correction.network_step_s * log2(
        max(cluster.n_devices / cluster.node_size, 1.0)
    )
    n_bucket = float(weights.count.sum()) // plan.grad_bucket if plan.overlap.dp else 0.0
    return EndWork(
        xp.asarray(_reduction_s(cluster, plan, splits, weights) * factor, dtype=float),
        xp.asarray(_gathering_s(cluster, plan, splits, weights) * factor, dtype=float),
        xp.asarray(_copies_s(cluster, plan, float(weights.shared)) * factor, dtype=float),
        xp.asarray(update_s * eff.correction.optimizer + idle_s, dtype=float),
        xp.asarray(n_bucket, dtype=float),
    )


def stage_end(work: EndWork, backward_s: Floats, forward_s: Floats, eff: Efficiency, xp: Any = np) -> StageEnd:
    """What of it shows.

    Args:
        backward_s, forward_s: [*plan, stage] of one micro-batch through all chunks of the stage: what reductions (of the last
            micro-batch) and gatherings (before the first of the next step) hide behind.
    """
    reduced = bucketed(work.reduce_s, backward_s, work.n_bucket, eff.correction.hidden, xp)
    gathered = bucketed(work.gather_s, forward_s, work.n_bucket, eff.correction.hidden, xp)
    hidden = reduced.hidden_s + gathered.hidden_s
    exposed = reduced.exposed_s + gathered.exposed_s + eff.overlap_slowdown * hidden + work.embedding_s
    return StageEnd(work.optimizer_s, exposed, hidden)


def optimizer_bytes(plan: ParallelPlan) -> float:
    """HBM traffic of the optimizer per parameter that a device updates.

    Notes:
        38 in mixed precision: gradient 4, master weight and two moments in and out 24, 16-bit weight 2; the gradient norm
        reads 4, zeroing writes 4. A 16-bit buffer whose gradients the optimizer wants in fp32 is read and copied first.

    Source: states as in ZeRO (arXiv 1910.02054 section 3.1).
    """
    dtypes = plan.state_dtypes
    states = 2.0 * (dtypes.main_params_bytes + dtypes.moments_bytes)
    buffer = plan.grad_sum_bytes
    read = ELEMENT_BYTES[dtypes.main_grads] if buffer < 4.0 else buffer
    copied = buffer + read if read > buffer else 0.0
    return copied + 2.0 * read + buffer + states + 2.0


def _updated(plan: ParallelPlan, splits: Floats, weights: StageWeights) -> float:
    """Parameters one device updates."""
    if plan.shard_group > 1:
        return sharded(weights.count, splits, plan.shard_group)
    return sharded(weights.count, splits, state_ranks(plan)) if plan.zero_stage >= 1 else float(weights.count.sum())


def _reduction_s(cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights) -> Values:
    """All-reduce of gradients, or reduce-scatter if the optimizer is sharded; HSDP: between copies of the sharding group."""
    stride, _ = plan.data_group
    wide = gradient_bytes(plan)
    if plan.shard_group > 1:
        between = plan.dp // plan.shard_group * plan.cp
        n_bytes = wide * sharded(weights.count, splits, plan.shard_group)
        return collective_s("all_reduce", n_bytes, cluster, stride * plan.shard_group, between).seconds
    kind = "reduce_scatter" if plan.zero_stage >= 1 else "all_reduce"
    return _in_buckets(kind, wide, cluster, plan, splits, weights)


def _gathering_s(cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights) -> Values:
    """Updated parameters back to every rank (ZeRO-1 and 2)."""
    if plan.shard_group > 1 or plan.zero_stage == 0:
        return 0.0
    n, root = float(weights.count.sum()), float(weights.root)
    mean = (weight_bytes(plan) * (n - root) + weight_bytes(plan, is_unit=False) * root) / max(n, 1.0)
    return _in_buckets("all_gather", mean, cluster, plan, splits, weights)


def _in_buckets(
    kind: str, wide: float, cluster: Cluster, plan: ParallelPlan, splits: Floats, weights: StageWeights
) -> Values:
    """Parameters of `wide` bytes, one collective per bucket and group; without overlap one per group."""
    stride, size = plan.data_group
    total = 0.0
    for count, split in zip(weights.count.tolist(), splits.astype(int).tolist(), strict=True):
        n = max(1, ceil(count / plan.grad_bucket)) if plan.overlap.dp else 1
        members = max(size // split, 1)
        total += n * collective_s(kind, wide * count / n, cluster, stride * split, members).seconds
    return total


def _copies_s(cluster: Cluster, plan: ParallelPlan, count: float) -> Values:
    """Gradients of shared tensors are added up between the first and the last stage."""
    n_bytes = gradient_bytes(plan) * count
    return collective_s("all_reduce", n_bytes, cluster, plan.stride("pp") * (plan.pp - 1), 2).seconds if count else 0.0
