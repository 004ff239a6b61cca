"""Memory of one device at its peak, in bytes: what the parallel plan needs against what the accelerator has.

Parameters, gradients and optimizer state by the sharding rules of ZeRO (arXiv 1910.02054) and Megatron-LM's distributed
optimizer; activations by the `saved_tensors` of a block times the micro-batches in flight under the schedule;
temporaries, communication buffers, framework and fragmentation on top. The worst pipeline stage decides.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..framework.memory_options import MEGATRON, MemoryOptions
from ..partition.chunks import chunk_classes, chunks_of_stage
from ..partition.weights import stage_weights
from ..plan.plan import ParallelPlan
from ..schedule.in_flight import in_flight_chunks
from ..system.hardware import Cluster
from ..workload.transformer.spec import TransformerSpec
from .factors import ActivationFactors, StateFactors, activation_factors, state_factors

Array = NDArray[np.float64]


@dataclass(frozen=True)
class StageMemory:
    """Peak bytes of one device of a pipeline stage: numbers of one stage, or arrays [*plan, stage] of many."""

    parameters_bytes: Any
    gradients_bytes: Any
    optimizer_bytes: Any
    activations_bytes: Any  # saved between forward and backward, all micro-batches in flight
    temporary_bytes: Any  # loss computation, or one layer's backward and recompute
    communication_bytes: Any  # gathered parameters, gradient buckets, pipeline buffers
    framework_bytes: Any  # context, kernels, communicators
    fragmentation_bytes: Any  # held by the caching allocator, not usable

    @property
    def total_bytes(self) -> float:
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
        return self.stages[self.stage]

    @property
    def total_bytes(self) -> float:
        return self.worst.total_bytes

    @property
    def headroom_bytes(self) -> float:
        """Capacity left; negative: by how much it does not fit."""
        return self.capacity_bytes - self.total_bytes

    @property
    def fits(self) -> bool:
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


def memory(
    model: TransformerSpec, cluster: Cluster, plan: ParallelPlan, options: MemoryOptions = MEGATRON
) -> MemoryBreakdown:
    """Peak memory of one device on every pipeline stage.

    Args:
        options: what the training framework holds where frameworks differ; Megatron-LM by default.

    Raises:
        PlanError: the layers cannot be spread over the chunks, or the schedule is unknown.
    """
    load = stage_load(model, plan)
    states, activations = state_factors(plan, options), activation_factors(model, plan, options)
    parts = stage_bytes(states, activations, load, options)
    rows = zip(
        *(np.broadcast_to(getattr(parts, field.name), plan.pp).tolist() for field in fields(StageMemory)), strict=True
    )
    return MemoryBreakdown(cluster.device.hbm_bytes, tuple(StageMemory(*row) for row in rows))


@dataclass(frozen=True)
class StageLoad:
    """What every stage holds; arrays have axes [*plan, stage].

    Attributes:
        dense, expert, largest_layer, ends: parameters, as in `StageWeights`.
        n_dense, n_moe: layers in flight: layers of the stage, times micro-batches whose activations it holds.
        n_embedding: micro-batches of token ids (and dropout masks) it holds.
        n_head: micro-batches of logits it holds.
        has_head: whether it computes the loss.
    """

    dense: Array
    expert: Array
    largest_layer: Array
    ends: Array
    n_dense: Array
    n_moe: Array
    n_embedding: Array
    n_head: Array
    has_head: Array


def stage_load(model: TransformerSpec, plan: ParallelPlan) -> StageLoad:
    """What the stages of one plan hold."""
    return StageLoad(*held_weights(model, plan), *held_activations(model, plan))


def held_weights(model: TransformerSpec, plan: ParallelPlan) -> Array:
    """[(dense, expert, largest_layer, ends), stage] parameters; depends on the layers of the chunks, tp and ep alone."""
    classes = chunk_classes(model, plan)
    weights = [stage_weights(model, plan, classes, chunks_of_stage(plan, stage)) for stage in range(plan.pp)]
    return np.array([astuple(own) for own in weights]).T


def held_activations(model: TransformerSpec, plan: ParallelPlan) -> Array:
    """[(n_dense, n_moe, n_embedding, n_head, has_head), stage]; depends on the chunks, schedule and micro-batches alone."""
    classes, rows = chunk_classes(model, plan), []
    for stage in range(plan.pp):
        held = chunks_of_stage(plan, stage)
        share = in_flight_chunks(plan, stage) / len(held)
        has_head = plan.n_chunk - 1 in held
        n_dense, n_moe = (sum(classes[chunk][kind] for chunk in held) for kind in (0, 1))
        n_head = has_head * (plan.n_micro_batch if plan.schedule == "gpipe" else 1)
        rows.append((n_dense * share, n_moe * share, (0 in held) * share, n_head, has_head))
    return np.array(rows, dtype=np.float64).T


def stage_bytes(
    states: StateFactors, activations: ActivationFactors, load: StageLoad, options: MemoryOptions
) -> StageMemory:
    """Bytes by component: arithmetic on numbers, or on arrays [*plan, stage] with factors [*plan, 1]."""

    def per_parameter(dense: ArrayLike, expert: ArrayLike) -> Array:
        return np.asarray(dense) * load.dense + np.asarray(expert) * load.expert

    saved = (
        activations.dense_layer * load.n_dense
        + activations.moe_layer * load.n_moe
        + activations.embedding * load.n_embedding
        + activations.head * load.n_head
    )
    temporary = np.maximum(activations.loss * load.has_head, activations.backward)
    copies = (options.n_gathered_layers + 1) * load.largest_layer + load.ends
    bucket = np.minimum(options.bucket_elements, per_parameter(states.bucket_dense, states.bucket_expert))
    gathered = np.minimum(
        states.gathered_element * copies, per_parameter(states.gathered_dense, states.gathered_expert)
    )
    return StageMemory(
        parameters_bytes=per_parameter(states.parameters_dense, states.parameters_expert),
        gradients_bytes=per_parameter(states.gradients_dense, states.gradients_expert),
        optimizer_bytes=per_parameter(states.optimizer_dense, states.optimizer_expert),
        activations_bytes=saved,
        temporary_bytes=temporary,
        communication_bytes=activations.pipeline + options.grad_bytes * bucket + gathered,
        framework_bytes=options.context_bytes + options.nccl_bytes * np.asarray(states.n_communicators),
        fragmentation_bytes=options.fragmentation * (saved + temporary),
    )
