"""StepCost: noise-free seconds of all that one member group does in a step, per model chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.arrays import Floats
from ..core.kernels import COMPUTE_CLASSES, PASSES
from ..framework.software import ALL_GATHER, ALL_REDUCE
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload
from .block_cost import BlockCostModel, stack_blocks
from .chunk_cost import ChunkCost, chunk_cost, chunk_of
from .efficiency import Efficiency
from .partition import chunk_blocks, chunks_of_stage
from .step_end import StageEnd, edge_seconds, end_works, stage_end


@dataclass(frozen=True)
class StepCost:
    """Seconds per (op kind, model chunk); a schedule that does not split the backward runs B and W as one op.

    Attributes:
        compute_s: [kind, chunk, compute_class] busy time of one device, already slowed by communication at the same time.
        comm_s: [kind, chunk, comm_axis] exposed communication inside an op.
        hidden_comm_s: [kind, chunk, comm_axis] communication that runs during compute.
        p2p_s: [chunk] time to hand activations of chunk q to chunk q + 1 on another stage (gradients take the same); last is 0.
        p2p_blocking: the send also occupies the sender (no overlap).
        end_compute_s: [stage] optimizer update, memory-bound.
        end_comm_s: [stage] exposed gradient reduction and parameter gathering after the last backward.
        end_hidden_comm_s: [stage] the part of it that runs under the backward.
        collective_of: axis -> kernel class of its communication, for tp, cp, ep, dp, pp and end.
        model_flops: of the whole step and all devices, without recompute (MFU).
        hardware_flops: with recompute (HFU).
        classes: names along the axis compute_class; `COMPUTE_CLASSES` come first.
    """

    compute_s: Floats
    comm_s: Floats
    hidden_comm_s: Floats
    p2p_s: Floats
    p2p_blocking: bool
    end_compute_s: Floats
    end_comm_s: Floats
    end_hidden_comm_s: Floats
    collective_of: Mapping[str, str]
    model_flops: float
    hardware_flops: float
    classes: tuple[str, ...] = COMPUTE_CLASSES


def step_cost(model: Workload, cluster: Cluster, plan: ParallelPlan, eff: Efficiency) -> StepCost:
    """Cost of one training step.

    Args:
        cluster: its rates and latencies may be traced by JAX; so may the constants of `eff`.
        eff: constants of the device, corrected by a calibration or not.

    Raises:
        SpecError: no constants for the device, or it lacks the plan's dtype.
        PlanError: `layer_split` does not fit.
    """
    cost = step_cost_of(BlockCostModel(model, cluster, plan.computed, eff))
    if not plan.data.is_drawn:
        return cost
    useful, again = (model.step_flops(plan, recomputed=recomputed) for recomputed in (False, True))
    return replace(cost, model_flops=useful, hardware_flops=again)


def step_cost_of(blocks: BlockCostModel) -> StepCost:
    """Cost of one training step, from a cost model of its blocks that several corrections may share.

    Raises:
        SpecError, PlanError: as `step_cost`.
    """
    model, plan, eff, xp = blocks.model, blocks.plan, blocks.eff, blocks.xp
    chunks = _chunk_costs(blocks, xp)
    compute_s, comm_s, hidden_s = (
        xp.moveaxis(part, 0, 1) for part in (chunks.compute_s, chunks.comm_s, chunks.hidden_s)
    )
    p2p_s = edge_seconds(model, blocks.cluster, plan, eff.correction)
    end = _stage_end(blocks, chunks, xp)
    return StepCost(
        compute_s=_beside_sends(compute_s, p2p_s, plan, eff, xp),
        comm_s=comm_s,
        hidden_comm_s=hidden_s,
        p2p_s=p2p_s,
        p2p_blocking=not plan.overlap.pp,
        end_compute_s=end.compute_s,
        end_comm_s=end.exposed_s,
        end_hidden_comm_s=end.hidden_s,
        collective_of=collective_classes(plan),
        model_flops=blocks.once(("model_flops", plan.software), lambda: model.step_flops(plan, recomputed=False)),
        hardware_flops=blocks.once(("hardware_flops", plan.software), lambda: model.step_flops(plan, recomputed=True)),
        classes=model.kernel_classes,
    )


def collective_classes(plan: ParallelPlan) -> dict[str, str]:
    """Kernel class whose variability the communication of every axis has; where there are two, the one in the forward pass."""
    return {
        "tp": "all_gather" if plan.sequence_parallel else "all_reduce",
        "cp": "all_gather",
        "ep": "all_gather" if plan.software.dispatcher in (ALL_GATHER, ALL_REDUCE) else "all_to_all",
        "dp": "all_gather",
        "pp": "p2p",
        "end": "reduce_scatter" if plan.zero_stage >= 1 and plan.shard_group == 1 else "all_reduce",
    }


def _beside_sends(compute_s: Floats, p2p_s: Floats, plan: ParallelPlan, eff: Efficiency, xp: Any) -> Floats:
    """Returns `compute_s` slowed by activations and gradients that are sent at the same time."""
    if not plan.overlap.pp:
        return compute_s
    beside = {"F": p2p_s, "B": xp.append(0.0 * p2p_s[:1], p2p_s[:-1])}  # what is sent, and what is received
    transfer_s = xp.stack([beside.get(name, 0.0 * p2p_s) for name in PASSES])
    is_gemm = (np.arange(compute_s.shape[-1]) == COMPUTE_CLASSES.index("gemm")).astype(float)
    return compute_s + eff.overlap_slowdown * transfer_s[..., None] * is_gemm[None, None]


def _chunk_costs(made: BlockCostModel, xp: Any) -> ChunkCost:
    """Cost of every chunk, [chunk]; chunks that hold the same blocks share one, and equal blocks are costed once."""
    plan, chunks = made.plan, chunk_blocks(made.model, made.plan)
    distinct = list(dict.fromkeys(chunks))
    blocks = stack_blocks([chunk_of(made, chunk) for chunk in distinct])
    cost = chunk_cost(blocks, float(plan.tp), float(plan.cp), made.eff, xp)
    which = np.array([distinct.index(chunk) for chunk in chunks])
    return ChunkCost(cost.compute_s[which], cost.comm_s[which], cost.hidden_s[which])


def _stage_end(blocks: BlockCostModel, chunks: ChunkCost, xp: Any) -> StageEnd:
    """Work [stage] of every stage at the end of the step."""
    held = [chunks_of_stage(blocks.plan, stage) for stage in range(blocks.plan.pp)]
    backward_s, forward_s = chunks.backward_s, chunks.forward_s
    backward = xp.stack([sum(backward_s[chunk] for chunk in own) for own in held])
    forward = xp.stack([sum(forward_s[chunk] for chunk in own) for own in held])
    return stage_end(end_works(blocks), backward, forward, blocks.eff, xp)
