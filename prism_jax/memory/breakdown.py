"""Memory of one device at its peak, in bytes: what the parallel plan needs against what the accelerator has.

Parameters, gradients and optimizer state by the sharding rules of ZeRO (arXiv 1910.02054) and Megatron-LM's distributed
optimizer; activations by the `saved_tensors` of a block times the micro-batches in flight under the schedule;
temporaries, communication buffers, framework and fragmentation on top. The worst pipeline stage decides.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from .._typing import Floats
from ..framework.memory_options import MEGATRON, MemoryOptions
from ..partition.chunks import chunk_blocks, chunks_of_stage
from ..partition.weights import stage_weights
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload, distinct_runs
from .factors import ActivationFactors, StateFactors, activation_factors, state_factors


@dataclass(frozen=True)
class StageMemory:
    """Peak bytes of one device of a pipeline stage: numbers of one stage, or arrays [*plan, stage] of many."""

    parameters_bytes: Any
    gradients_bytes: Any
    optimizer_bytes: Any
    activations_bytes: Any  # saved between forward and backward, all micro-batches in flight
    temporary_bytes: Any  # loss computation, or one layer's backward and recompute
    workspace_bytes: Any  # of matrix products
    communication_bytes: Any  # gathered parameters, gradient buckets, pipeline buffers
    framework_bytes: Any  # context, kernels, communicators
    fragmentation_bytes: Any  # held by the caching allocator, not usable

    @property
    def total_bytes(self) -> float:
        """Sum of all components, bytes."""
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def states_bytes(self) -> float:
        """Parameters, gradients and optimizer state."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def allocator_bytes(self) -> float:
        """What the framework's allocator reserves: everything but context and communicators."""
        return self.total_bytes - self.framework_bytes


@dataclass(frozen=True)
class MemoryBreakdown:
    """Memory of every pipeline stage against the capacity of the device; properties speak of the worst stage."""

    capacity_bytes: float
    stages: tuple[StageMemory, ...]

    @property
    def stage(self) -> int:
        """The stage that needs most; the first of equals."""
        return max(range(len(self.stages)), key=lambda stage: self.stages[stage].total_bytes)

    @property
    def worst(self) -> StageMemory:
        """Memory of the stage that needs most."""
        return self.stages[self.stage]

    @property
    def total_bytes(self) -> float:
        """Peak of the worst stage, bytes."""
        return self.worst.total_bytes

    @property
    def headroom_bytes(self) -> float:
        """Capacity left; negative: by how much it does not fit."""
        return self.capacity_bytes - self.total_bytes

    @property
    def fits(self) -> bool:
        """Whether the worst stage fits."""
        return self.headroom_bytes >= 0.0

    def as_dict(self) -> dict[str, float]:
        """Bytes by component on the worst stage, with total, capacity and headroom."""
        parts = {field.name.removesuffix("_bytes"): getattr(self.worst, field.name) for field in fields(StageMemory)}
        return {
            "total": self.total_bytes,
            **parts,
            "capacity": self.capacity_bytes,
            "headroom": self.headroom_bytes,
        }


def memory(model: Workload, cluster: Cluster, plan: ParallelPlan, options: MemoryOptions = MEGATRON) -> MemoryBreakdown:
    """Peak memory of one device on every pipeline stage.

    Args:
        options: what the training framework holds where frameworks differ; Megatron-LM by default.

    Raises:
        PlanError: the layers cannot be spread over the chunks, or the schedule is unknown.
    """
    states, activations = state_factors(model, plan, options), activation_factors(model, plan, options)
    parts = stage_bytes(states, activations, held_weights(model, plan), held_activations(model, plan), options)
    rows = zip(
        *(np.broadcast_to(getattr(parts, field.name), plan.pp).tolist() for field in fields(StageMemory)), strict=True
    )
    return MemoryBreakdown(cluster.device.hbm_bytes, tuple(StageMemory(*row) for row in rows))


class HeldWeights(NamedTuple):
    """Parameters of every stage, as in `StageWeights`.

    Attributes:
        count: [*plan, stage, group]
        largest_unit, root: [*plan, stage]
    """

    count: Floats
    largest_unit: Floats
    root: Floats


def held_weights(model: Workload, plan: ParallelPlan) -> HeldWeights:
    """Parameters of the stages; depends on the layers of the chunks, tp and ep alone."""
    held = [chunks_of_stage(plan, stage) for stage in range(plan.pp)]
    weights = stage_weights(model, plan, chunk_blocks(model, plan), held)
    return HeldWeights(*(np.stack([getattr(own, name) for own in weights]) for name in HeldWeights._fields))


def held_activations(model: Workload, plan: ParallelPlan) -> Floats:
    """[stage, kind] blocks in flight; depends on the chunks, schedule and micro-batches alone.

    Notes:
        Chunks of a stage with unlike numbers of layers are in flight unlike often where the schedule says so. The blocks of the
        last chunk's end run their backward right after their forward, unless all forwards come first.
    """
    chunks, places = chunk_blocks(model, plan), np.array([run.place for run in distinct_runs(model)])
    at_end, in_body = places == "last", places == "body"
    schedule, degrees = plan.pipeline_schedule, (plan.pp, plan.n_micro_batch, plan.virtual_stages)
    rows = []
    for stage in range(plan.pp):
        held = chunks_of_stage(plan, stage)
        by_chunk = np.array([chunks[chunk] for chunk in held], dtype=np.float64)
        in_flight = schedule.in_flight_of_chunks(stage, *degrees, by_chunk[:, in_body].sum(axis=1).tolist())
        blocks, body = by_chunk.sum(axis=0), np.array(in_flight) @ by_chunk
        n_end = schedule.logits_held(stage, *degrees) if blocks[at_end].any() else 0
        rows.append(np.where(at_end, n_end * blocks, body))
    return np.array(rows)


def stage_bytes(
    states: StateFactors, activations: ActivationFactors, held: HeldWeights, saved: Floats, options: MemoryOptions
) -> StageMemory:
    """Bytes by component [*plan, stage].

    Args:
        held: parameters of the stages.
        saved: [*plan, stage, kind] blocks in flight: blocks of the stage, times micro-batches whose activations it holds.
    """

    def per_parameter(factor: Floats) -> Floats:
        return (factor[..., None, :] * held.count).sum(axis=-1)

    def by_plan(value: Floats) -> Floats:
        return np.asarray(value)[..., None]

    kept = (activations.saved[..., None, :] * saved).sum(axis=-1)
    forward = (activations.forward_peak[..., None, :] * (saved > 0.0)).max(axis=-1)
    temporary = np.maximum(forward, by_plan(activations.backward_peak))
    temporary = np.maximum(
        temporary, per_parameter(states.update) - kept
    )  # the update starts when activations are gone
    copies = (options.n_gathered_layers + 1) * held.largest_unit + held.root
    bucket = np.minimum(options.bucket_elements, per_parameter(states.bucket))
    gathered = np.minimum(by_plan(states.gathered_element) * copies, per_parameter(states.gathered))
    return StageMemory(
        parameters_bytes=per_parameter(states.parameters)
        + by_plan(states.copied_element) * (held.count.sum(axis=-1) - held.root),
        gradients_bytes=per_parameter(states.gradients),
        optimizer_bytes=per_parameter(states.optimizer),
        activations_bytes=kept,
        temporary_bytes=temporary,
        workspace_bytes=by_plan(activations.workspace),
        communication_bytes=by_plan(activations.pipeline) + by_plan(states.bucket_element) * bucket + gathered,
        framework_bytes=options.context_bytes + options.nccl_bytes * by_plan(states.n_communicators),
        fragmentation_bytes=options.fragmentation * (kept + temporary),
    )
