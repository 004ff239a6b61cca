"""Seconds to hand the activations of a micro-batch from a model chunk to the next, over the distance between their stages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._core.arrays import namespace
from .._typing import Floats
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload
from .communication import collective_s
from .correction import NEUTRAL, CostCorrection


def edge_seconds(model: Workload, cluster: Cluster, plan: ParallelPlan, correction: CostCorrection = NEUTRAL) -> Floats:
    """[chunk] seconds of the edge from chunk q to q + 1; zero on one stage, and for the last chunk."""
    seconds = distance_seconds(model, cluster, plan, correction)
    return namespace(seconds).append(seconds, 0.0)[edge_distances(cluster, plan)]


def edge_distances(cluster: Cluster, plan: ParallelPlan) -> NDArray[np.intp]:
    """[chunk] class of the distance between the stages of chunk q and q + 1; -1 on one stage, and for the last chunk."""
    device = np.array(stages(plan), dtype=np.intp) * plan.stride("pp")
    distances = np.full(plan.n_chunk, -1, dtype=np.intp)
    crossed = np.flatnonzero(device[:-1] != device[1:])
    distances[crossed] = cluster.fabric.distances(device[crossed], device[crossed + 1])
    return distances


def distance_seconds(
    model: Workload, cluster: Cluster, plan: ParallelPlan, correction: CostCorrection = NEUTRAL
) -> Floats:
    """[distance] seconds to hand a micro-batch's activations over each class of distance.

    Notes:
        Every tensor-parallel rank sends its 1/tp of the tokens through its own port. Without sequence parallelism the
        receivers then gather the pieces over NVLink (scatter-gather optimisation, arXiv 2104.04473 section 4.1).
    """
    activation, network = model.boundary_bytes(plan), cluster.fabric
    gather = 0.0
    if plan.tp > 1 and not plan.sequence_parallel:
        gather = (
            collective_s("all_gather", activation, cluster, plan.stride("tp"), plan.tp).seconds * correction.scale_up
        )
    distances, stride = range(network.n_distance), plan.stride("pp")
    sends = [network.send_s(activation / plan.tp, distance, stride) for distance in distances]
    whole = [
        send * correction.comm(network.leaves_node(d))[0] + gather for d, send in zip(distances, sends, strict=True)
    ]
    return namespace(whole).asarray(whole, dtype=float)


def stages(plan: ParallelPlan) -> tuple[int, ...]:
    """Stage of every chunk; of bidirectional schedules, for the first direction."""
    return plan.pipeline_schedule.placements(plan.pp, plan.virtual_stages)[0]
