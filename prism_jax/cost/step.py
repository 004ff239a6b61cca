"""step_cost: noise-free seconds of everything one member group does in a step, from a model, a cluster and a plan."""

from __future__ import annotations

import numpy as np

from ..plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.transformer import TransformerSpec
from .chunk_cost import ChunkCost, CostModel
from .chunks import chunks_of_stage, layers_of_chunks
from .efficiency import Efficiency, efficiency
from .pipeline_edge import edge_seconds
from .step_cost import COMPUTE_CLASSES, KINDS, Array, StepCost
from .step_end import StageEnd, stage_end
from .weights import stage_weights


def step_cost(model: TransformerSpec, cluster: Cluster, plan: ParallelPlan, eff: Efficiency | None = None) -> StepCost:
    """Cost of one training step.

    Args:
        eff: constants of the device; the preset of its generation if not given.

    Raises:
        SpecError: no constants for the device, or it lacks the plan's dtype.
        PlanError: `layer_split` does not fit.
    """
    if eff is None:
        eff = efficiency(cluster.device.generation)
    chunks = _chunk_costs(model, cluster, plan, eff)
    p2p_s = edge_seconds(model, cluster, plan)
    ends = _stage_ends(model, cluster, plan, eff, chunks)
    causal = plan.attention != "unfused"
    tokens = float(plan.global_batch * plan.seq_len)
    return StepCost(
        compute_s=_beside_sends(np.stack([chunk.compute_s for chunk in chunks], axis=1), p2p_s, plan, eff),
        comm_s=np.stack([chunk.comm_s for chunk in chunks], axis=1),
        hidden_comm_s=np.stack([chunk.hidden_s for chunk in chunks], axis=1),
        p2p_s=p2p_s,
        p2p_blocking=not plan.overlap.pp,
        end_compute_s=np.array([end.compute_s for end in ends]),
        end_comm_s=np.array([end.exposed_s for end in ends]),
        end_hidden_comm_s=np.array([end.hidden_s for end in ends]),
        collective_of=collective_classes(plan),
        model_flops=tokens * model.train_flops_per_token(plan.seq_len, causal),
        hardware_flops=tokens * model.train_flops_per_token(plan.seq_len, causal, plan.recompute),
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


def _beside_sends(compute_s: Array, p2p_s: Array, plan: ParallelPlan, eff: Efficiency) -> Array:
    """`compute_s` slowed by the activations and gradients that are on their way beside it."""
    if not plan.overlap.pp:
        return compute_s
    slowed = compute_s.copy()
    gemm = COMPUTE_CLASSES.index("gemm")
    slowed[KINDS.index("F"), :, gemm] += eff.overlap_slowdown * p2p_s
    slowed[KINDS.index("B"), 1:, gemm] += eff.overlap_slowdown * p2p_s[:-1]
    return slowed


def _chunk_costs(model: TransformerSpec, cluster: Cluster, plan: ParallelPlan, eff: Efficiency) -> list[ChunkCost]:
    """Cost of every chunk; chunks with equal layers and ends share one."""
    cost_model = CostModel(model, cluster, plan, eff)
    known: dict[tuple[int, int, bool, bool], ChunkCost] = {}
    costs = []
    for index, layers in enumerate(layers_of_chunks(model.n_layers, plan)):
        first, last = index == 0, index == plan.n_chunk - 1
        n_moe = sum(model.is_moe_layer(layer) for layer in layers)
        key = (len(layers), n_moe, first, last)
        if key not in known:
            known[key] = cost_model.chunk(layers, has_embedding=first, has_head=last)
        costs.append(known[key])
    return costs


def _stage_ends(
    model: TransformerSpec, cluster: Cluster, plan: ParallelPlan, eff: Efficiency, chunks: list[ChunkCost]
) -> list[StageEnd]:
    layers = layers_of_chunks(model.n_layers, plan)
    ends = []
    for stage in range(plan.pp):
        held = chunks_of_stage(plan, stage)
        at_end = 0 in held or plan.n_chunk - 1 in held
        ends.append(
            stage_end(
                model,
                cluster,
                plan,
                stage_weights(model, plan, layers, held),
                eff,
                backward_s=sum(chunks[chunk].backward_s for chunk in held),
                forward_s=sum(chunks[chunk].forward_s for chunk in held),
                shares_embedding=model.tied_embeddings and plan.pp > 1 and at_end,
            )
        )
    return ends
