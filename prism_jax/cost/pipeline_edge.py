"""Seconds to hand the activations of a micro-batch from a model chunk to the next, on the tier between their stages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._arrays import Values, namespace
from .._typing import Floats
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload
from .collective import Group, candidates, collective_s
from .correction import NEUTRAL, Correction


def edge_seconds(model: Workload, cluster: Cluster, plan: ParallelPlan, fix: Correction = NEUTRAL) -> Floats:
    """[chunk] seconds of the edge from chunk q to q + 1; zero on one stage, and for the last chunk."""
    seconds = tier_seconds(model, cluster, plan, fix)
    return namespace(seconds).append(seconds, 0.0)[edge_tiers(cluster, plan)]


def edge_tiers(cluster: Cluster, plan: ParallelPlan) -> NDArray[np.intp]:
    """[chunk] index of the innermost tier that joins the stages of chunk q and q + 1; -1 on one stage, and for the last chunk."""
    stage, stride = np.array(stages(plan)), plan.stride("pp")
    tiers = np.full(plan.n_chunk, -1, dtype=np.intp)
    crossed = np.flatnonzero(stage[:-1] != stage[1:])
    tiers[crossed] = len(cluster.tiers) - 1
    for level in reversed(range(len(cluster.tiers) - 1)):
        domain = stage * stride // cluster.tiers[level].n_devices
        tiers[crossed[domain[crossed] == domain[crossed + 1]]] = level
    return tiers


def tier_seconds(model: Workload, cluster: Cluster, plan: ParallelPlan, fix: Correction = NEUTRAL) -> Floats:
    """[tier] seconds to hand a micro-batch's activations over each tier.

    Notes:
        Every tensor-parallel rank sends its 1/tp of the tokens through its own port. Without sequence parallelism the
        receivers then gather the pieces over NVLink (scatter-gather optimisation, arXiv 2104.04473 section 4.1).
    """
    activation = model.boundary_bytes(plan)
    gather = 0.0
    if plan.tp > 1 and not plan.sequence_parallel:
        gather = collective_s("all_gather", activation, cluster, plan.stride("tp"), plan.tp).seconds * fix.scale_up
    sends = [_send_s(activation / plan.tp, cluster, plan, tier) for tier in range(len(cluster.tiers))]
    whole = [seconds * fix.comm(tier > 0)[0] + gather for tier, seconds in enumerate(sends)]
    return namespace(whole).asarray(whole, dtype=float)


def stages(plan: ParallelPlan) -> tuple[int, ...]:
    """Stage of every chunk; of bidirectional schedules, for the first direction."""
    return plan.pipeline_schedule.placements(plan.pp, plan.virtual_stages)[0]


def _send_s(n_bytes: Values, cluster: Cluster, plan: ParallelPlan, level: int) -> Values:
    """A message between the same position of two stages that meet at tier `level`.

    Notes:
        An oversubscribed tier is shared by those who cross it at the same time: one stage of every domain below.
    """
    stride, tier = plan.stride("pp"), cluster.tiers[level]
    if level > 0:
        crossing = min(1.0, stride / cluster.tiers[level - 1].n_devices)
        rate = namespace(tier).minimum(tier.bytes_per_s, tier.effective_bytes_per_s / crossing)
        n_bytes = n_bytes * (tier.effective_bytes_per_s / rate)
    members = tuple(2 if i == level else 1 for i in range(len(cluster.tiers)))
    group = Group(cluster.tiers, members, Group.of(cluster, stride, 2).network_share)
    return candidates("p2p", n_bytes, group)["direct"]
