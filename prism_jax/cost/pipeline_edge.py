"""Seconds to hand the activations of a micro-batch from a model chunk to the next, on the tier between their stages."""

from __future__ import annotations

import numpy as np

from ..plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.shard import Shard
from ..workload.transformer import TransformerSpec
from .chunks import chunks_of_stage
from .collective import Group, candidates, collective_s
from .step_cost import Array


def edge_seconds(model: TransformerSpec, cluster: Cluster, plan: ParallelPlan) -> Array:
    """[chunk] seconds of the edge from chunk q to q + 1; zero on one stage, and for the last chunk.

    Notes:
        Every tensor-parallel rank sends its 1/tp of the tokens through its own port. Without sequence parallelism the
        receivers then gather the pieces over NVLink (scatter-gather optimisation, arXiv 2104.04473 section 4.1).
    """
    seconds = np.zeros(plan.n_chunk)
    if plan.pp == 1:
        return seconds
    shard = Shard.of(model, plan)
    activation = shard.element_bytes * shard.tokens * model.hidden
    gather = 0.0
    if plan.tp > 1 and not plan.sequence_parallel:
        gather = collective_s("all_gather", activation, cluster, plan.stride("tp"), plan.tp).seconds
    stage = stages(plan)
    sent: dict[tuple[int, int], float] = {}
    for chunk in range(plan.n_chunk - 1):
        edge = (stage[chunk], stage[chunk + 1])
        if edge[0] == edge[1]:
            continue
        if edge not in sent:
            sent[edge] = _send_s(activation / plan.tp, cluster, plan, *edge) + gather
        seconds[chunk] = sent[edge]
    return seconds


def stages(plan: ParallelPlan) -> list[int]:
    """Stage of every chunk; of bidirectional schedules, for the first direction."""
    if plan.schedule == "dualpipe":
        return list(range(plan.n_chunk))
    stage = [0] * plan.n_chunk
    for s in range(plan.pp):
        for chunk in chunks_of_stage(plan, s):
            stage[chunk] = s
    return stage


def _send_s(n_bytes: float, cluster: Cluster, plan: ParallelPlan, source: int, target: int) -> float:
    """A message between the same position of two stages.

    Notes:
        An oversubscribed tier is shared by those who cross it at the same time: one stage of every domain below.
    """
    stride = plan.stride("pp")
    level = len(cluster.tiers) - 1
    for i, tier in enumerate(cluster.tiers):
        if (source * stride) // tier.n_devices == (target * stride) // tier.n_devices:
            level = i
            break
    tier = cluster.tiers[level]
    if level > 0:
        crossing = min(1.0, stride / cluster.tiers[level - 1].n_devices)
        rate = min(tier.bytes_per_s, tier.effective_bytes_per_s / crossing)
        n_bytes *= tier.effective_bytes_per_s / rate
    members = tuple(2 if i == level else 1 for i in range(len(cluster.tiers)))
    group = Group(cluster.tiers, members, Group.of(cluster, stride, 2).network_share)
    return float(candidates("p2p", n_bytes, group)["direct"])
