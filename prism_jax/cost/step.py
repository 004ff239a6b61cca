"""step_cost: noise-free seconds of everything one member group does in a step, from a model, a cluster and a plan."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .._typing import Floats
from ..kernels import COMPUTE_CLASSES, PASSES
from ..partition.chunks import chunk_blocks, chunks_of_stage
from ..partition.weights import group_splits, stage_weights
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload, kinds_of
from .block_cost import BlockCostModel
from .chunk_cost import ChunkCost, blocks_of, chunk_cost
from .efficiency import Efficiency
from .pipeline_edge import edge_seconds
from .step_cost import StepCost
from .step_end import EndWork, StageEnd, end_work, stage_end


def step_cost(model: Workload, cluster: Cluster, plan: ParallelPlan, eff: Efficiency) -> StepCost:
    """Cost of one training step.

    Args:
        eff: constants of the device, corrected by a calibration or not.

    Raises:
        SpecError: no constants for the device, or it lacks the plan's dtype.
        PlanError: `layer_split` does not fit.
    """
    chunks = _chunk_costs(model, cluster, plan, eff)
    p2p_s = edge_seconds(model, cluster, plan, eff.fix)
    end = _stage_end(model, cluster, plan, eff, chunks)
    return StepCost(
        compute_s=_beside_sends(np.stack([chunk.compute_s for chunk in chunks], axis=1), p2p_s, plan, eff),
        comm_s=np.stack([chunk.comm_s for chunk in chunks], axis=1),
        hidden_comm_s=np.stack([chunk.hidden_s for chunk in chunks], axis=1),
        p2p_s=p2p_s,
        p2p_blocking=not plan.overlap.pp,
        end_compute_s=end.compute_s,
        end_comm_s=end.exposed_s,
        end_hidden_comm_s=end.hidden_s,
        collective_of=collective_classes(plan),
        model_flops=model.step_flops(plan, recomputed=False),
        hardware_flops=model.step_flops(plan, recomputed=True),
    )


def collective_classes(plan: ParallelPlan) -> dict[str, str]:
    """Kernel class whose variability the communication of every axis has; where there are two, the one in the forward pass."""
    return {
        "tp": "all_gather" if plan.sequence_parallel else "all_reduce",
        "cp": "all_gather",
        "ep": "all_to_all",
        "dp": "all_gather",
        "pp": "p2p",
        "end": "reduce_scatter" if plan.zero_stage >= 1 and plan.shard_group == 1 else "all_reduce",
    }


def _beside_sends(compute_s: Floats, p2p_s: Floats, plan: ParallelPlan, eff: Efficiency) -> Floats:
    """`compute_s` slowed by the activations and gradients that are on their way beside it."""
    if not plan.overlap.pp:
        return compute_s
    slowed = compute_s.copy()
    gemm = COMPUTE_CLASSES.index("gemm")
    slowed[PASSES.index("F"), :, gemm] += eff.overlap_slowdown * p2p_s
    slowed[PASSES.index("B"), 1:, gemm] += eff.overlap_slowdown * p2p_s[:-1]
    return slowed


def _chunk_costs(model: Workload, cluster: Cluster, plan: ParallelPlan, eff: Efficiency) -> list[ChunkCost]:
    """Cost of every chunk; chunks that hold the same blocks share one, and equal blocks are costed once."""
    block, kinds = lru_cache(BlockCostModel(model, cluster, plan, eff).whole), kinds_of(model)
    of_chunk = lru_cache(lambda chunk: chunk_cost(blocks_of(chunk, kinds, block), plan.tp, plan.cp, eff))
    return [of_chunk(chunk) for chunk in chunk_blocks(model, plan)]


def _stage_end(
    model: Workload, cluster: Cluster, plan: ParallelPlan, eff: Efficiency, chunks: list[ChunkCost]
) -> StageEnd:
    """[stage] what every stage does at the end of the step."""
    held = [chunks_of_stage(plan, stage) for stage in range(plan.pp)]
    weights = stage_weights(model, plan, chunk_blocks(model, plan), held)
    work = [end_work(cluster, plan, group_splits(model, plan), own, eff) for own in weights]
    backward = np.array([sum(float(chunks[chunk].backward_s) for chunk in own) for own in held])
    forward = np.array([sum(float(chunks[chunk].forward_s) for chunk in own) for own in held])
    return stage_end(EndWork(*np.array(work).T), backward, forward, eff)
