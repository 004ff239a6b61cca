"""Memory of one device at its peak, in bytes: the need of the parallel plan against the capacity of the accelerator.

Parameters, gradients and optimizer state by the sharding rules of ZeRO (arXiv 1910.02054) and Megatron-LM's distributed
optimizer; activations by the `saved_tensors` of a block times the micro-batches in flight under the schedule;
temporaries, communication buffers, framework and fragmentation on top. The worst pipeline stage decides.

`StateFactors` depend on how states are sharded, `ActivationFactors` on the shape of a micro-batch and on recomputation: a sweep
over plans makes each of them once. Arrays may have leading axes [*plan].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Floats
from ..core.units import format_bytes
from ..framework.base import MEGATRON, MemoryOptions
from ..framework.software import EAGER, LINEAR, STREAMS
from ..plan.fields import ELEMENT_BYTES, OPTIONS, gradients_on_host, optimizer_on_host, precision_of, updates_shards
from ..plan.optimizers import (
    OPTIMIZERS,
    has_master,
    main_gradient_bytes,
    moments_bytes,
    rest_moments_bytes,
    updated_bytes,
)
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Block, Workload, distinct_runs, frozen_groups, kinds_of, total_bytes
from .partition import (
    chunk_blocks,
    chunks_of_stage,
    group_splits,
    optimizer_ranks,
    optimizer_shares,
    stage_weights,
    state_ranks,
    trained_groups,
)

_FP32_STATES = 12.0  # master copy and two moments


class StateFactors(NamedTuple):
    """Bytes per parameter of a stage, after tensor and expert parallelism, by group of parameters.

    Attributes:
        parameters, gradients, optimizer: [*plan, group] of the states a device keeps.
        freed_gradient: [*plan] of a gradient that is applied, or moved to the host, within the backward pass; 0 where they stay.
        optimizer_rest: [*plan] of what embedding and head have on top, where the optimizer has other states for them.
        bucket: [*plan, group] unsharded parameters whose gradients wait for their reduce-scatter (a share, not bytes), limited by
            the bucket.
        gathered: [*plan, group] of what sharding left out and a device may hold for a moment.
        gathered_element: [*plan] bytes of one element of a gathered copy.
        copied_element: [*plan] bytes of the fp8 copies of one parameter of a layer, which are not sharded.
        update: [*plan, group] of what is held for a moment while the optimizer runs.
        bucket_element: [*plan] bytes of one gradient in a bucket.
        n_communicators: [*plan] groups that communicate.
    """

    parameters: Floats
    gradients: Floats
    freed_gradient: Floats
    optimizer: Floats
    optimizer_rest: Floats
    bucket: Floats
    gathered: Floats
    gathered_element: Floats
    copied_element: Floats
    update: Floats
    bucket_element: Floats
    n_communicators: Floats


class ActivationFactors(NamedTuple):
    """Activation memory, bytes per micro-batch.

    Attributes:
        saved: [*plan, kind] kept between forward and backward, by kind of block.
        forward_peak: [*plan, kind] held for a moment while a block's forward runs (the loss).
        backward_peak: [*plan, kind] held for a moment while a block's gradients are computed, with what recomputation and the
            host bring back for them.
        pipeline: [*plan] activation and gradient buffers of the neighbours, in and out.
        workspace: [*plan] scratch of matrix products, which the allocator holds all the time; not per micro-batch.
    """

    saved: Floats
    forward_peak: Floats
    backward_peak: Floats
    pipeline: Floats
    workspace: Floats


def state_factors(model: Workload, plan: ParallelPlan, rules: MemoryOptions) -> StateFactors:
    """Returns the shares of per-parameter state that a device keeps under `plan`."""
    splits = group_splits(model, plan)
    whole, states = np.ones_like(splits), 1.0 / np.maximum(state_ranks(plan) / splits, 1.0)
    parameters = 1.0 / np.maximum(plan.shard_group / splits, 1.0) if plan.shard_group > 1 else whole
    trained = trained_groups(model, plan)
    in_hbm = 0.0 if plan.offload_parameters else parameters
    kept = trained * (0.0 if plan.optimizer_in_backward else 1.0 - gradients_on_host(plan) * optimizer_on_host(plan))
    parameters_bytes, frozen_element = _group_bytes(model, plan)
    optimizer_share = optimizer_shares(splits, plan)
    buckets = plan.zero_stage >= 2 and plan.shard_group == 1
    degrees = (plan.tp, plan.cp, plan.dp, plan.pp, plan.ep)
    return StateFactors(
        parameters=parameters_bytes * in_hbm,
        gradients=kept
        * _gradient_bytes(plan, rules)
        * (states if updates_shards(plan) or plan.zero_stage >= 2 else whole),
        freed_gradient=np.array(_freed_bytes(plan, rules)),
        optimizer=trained * _optimizer_bytes(plan, rules) * optimizer_share,
        optimizer_rest=np.array(_rest_bytes(plan) / optimizer_ranks(plan)),
        bucket=trained * (1.0 - states) if buckets else np.zeros_like(splits),
        gathered=np.minimum(parameters_bytes, plan.element_bytes) * (1.0 - in_hbm),
        gathered_element=np.array(frozen_element if plan.shard_group > 1 or plan.offload_parameters else 0.0),
        copied_element=np.array(_fp8_copy_bytes(plan, rules)),
        update=trained * _update_bytes(plan, rules) * (1.0 - optimizer_on_host(plan)) * optimizer_share,
        bucket_element=np.array(_buffer_bytes(plan, rules)),
        n_communicators=np.array(float(sum(degree > 1 for degree in degrees))),
    )


def _group_bytes(model: Workload, plan: ParallelPlan) -> tuple[Floats, float]:
    """Bytes of a parameter that is kept, and of one that is gathered, [group]; frozen ones have a format of their own."""
    frozen, own = frozen_groups(model, plan), parameter_bytes(plan)
    kept = np.array([frozen.get(name, own) for name, _ in model.groups(plan)])
    return kept, min(frozen.values(), default=plan.element_bytes)


def parameter_bytes(plan: ParallelPlan) -> float:
    """Returns the bytes of a parameter as a device keeps it: under FSDP the one that is updated.

    Notes:
        In fp8 a parameter and its transposed copy take as much as one in 16 bits.
    """
    return updated_bytes(plan) if updates_shards(plan) else plan.element_bytes


def _fp8_copy_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    precision = precision_of(plan)
    has_copies = precision is not None and not plan.state_dtypes.fp8_params and plan.shard_group == 1
    return rules.fp8_copy_bytes * precision.input_bytes if precision is not None and has_copies else 0.0


def _optimizer_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    at_home = 1.0 - optimizer_on_host(plan)
    master = updated_bytes(plan) if has_master(plan) and not updates_shards(plan) else 0.0
    paged = OPTIMIZERS[plan.optimizer].is_paged
    return at_home * (rules.optimizer_bytes - _FP32_STATES + master + (0.0 if paged else moments_bytes(plan)))


def _rest_bytes(plan: ParallelPlan) -> float:
    """Returns the bytes by which the moments of embedding and head exceed those of a layer's matrices, per parameter."""
    return (1.0 - optimizer_on_host(plan)) * (rest_moments_bytes(plan) - moments_bytes(plan))


def _freed_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    """Returns the bytes of gradients of a unit (or their shards) that are applied, or go to the host, at once."""
    leaves = plan.optimizer_in_backward or gradients_on_host(plan)
    own = _gradient_bytes(plan, rules) if leaves else 0.0
    return own / state_ranks(plan) if updates_shards(plan) or plan.zero_stage >= 2 else own


def _buffer_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    """Returns the bytes of an element of the buffer that gradients are summed in; FSDP's have the format of its parameters."""
    if updates_shards(plan):
        return parameter_bytes(plan)
    if plan.state_dtypes.grad_reduce is not None:
        return ELEMENT_BYTES[plan.state_dtypes.grad_reduce]
    if not has_master(plan):
        return plan.element_bytes
    # Code for fp16 sums in fp16: Megatron-LM, DeepSpeed `FP16_Optimizer`.
    return {"fp32": 4.0, "fp16": min(rules.grad_bytes, 2.0)}.get(plan.dtype, rules.grad_bytes)


def _gradient_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    in_model_dtype = rules.model_grad_bytes if plan.dp > 1 and not updates_shards(plan) else 0.0
    return _buffer_bytes(plan, rules) + in_model_dtype


def _update_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    """Returns the bytes of the copy of a 16-bit buffer in the format that the optimizer reads, and of results passed between
    separate operations.

    Notes:
        PyTorch's multi-tensor operations (`foreach`) hold about the size of the parameters more than a loop over them.
    """
    wanted = main_gradient_bytes(plan)
    passed_on = updated_bytes(plan) if plan.software.optimizer == EAGER and moments_bytes(plan) else 0.0
    return passed_on + (wanted if not updates_shards(plan) and wanted > _buffer_bytes(plan, rules) else 0.0)


def activation_factors(model: Workload, plan: ParallelPlan, rules: MemoryOptions) -> ActivationFactors:
    """Returns the bytes that a micro-batch of `plan` leaves in memory, by block of the model."""
    blocks = [model.block(kind, plan) for kind in kinds_of(model)]

    def each(of: Callable[[Block], float]) -> Floats:
        return np.array([of(block) for block in blocks])

    ranks = plan.tp if plan.sequence_parallel else 1
    saved, moved = each(lambda block: total_bytes(block.saved(rules))), plan.offload_activations
    brought_back = each(lambda block: block.recomputed_bytes(rules)) + moved * saved
    return ActivationFactors(
        saved=(1.0 - moved) * saved,
        forward_peak=each(lambda block: block.forward_peak_bytes(rules)),
        backward_peak=each(lambda block: block.backward_peak_bytes(rules)) + brought_back,
        pipeline=np.array(4 * model.boundary_bytes(plan) / ranks if plan.pp > 1 else 0.0),
        workspace=np.array(rules.workspace_bytes + _expert_workspace_bytes(model, plan, rules)),
    )


def _expert_workspace_bytes(model: Workload, plan: ParallelPlan, rules: MemoryOptions) -> float:
    """Returns the bytes of library workspaces for experts on several streams; other ways of running them have none."""
    on_streams = plan.software.expert_products in (None, STREAMS)
    return rules.expert_workspace_bytes if model.has_experts and on_streams else 0.0


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
        """Bytes that the framework's allocator reserves: everything but context and communicators."""
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
        options: memory rules in which training frameworks differ; Megatron-LM's by default.

    Raises:
        PlanError: the layers cannot be spread over the chunks, or the schedule is unknown.
    """
    states, activations = state_factors(model, plan, options), activation_factors(model, plan, options)
    parts = stage_bytes(states, activations, held_weights(model, plan), held_activations(model, plan), options)
    rows = zip(
        *(np.broadcast_to(getattr(parts, field.name), plan.pp).tolist() for field in fields(StageMemory)), strict=True
    )
    return MemoryBreakdown(cluster.device.hbm_bytes, tuple(StageMemory(*row) for row in rows))


def chunk_activations(model: Workload, plan: ParallelPlan, options: MemoryOptions) -> Floats:
    """Returns the bytes that the forward pass of one micro-batch leaves in memory, [2, chunk] in model order.

    Notes: the first row stays until gradients of weights are computed, the second, of head and loss, until those of inputs are.
    """
    at_end = np.array([run.place == "last" for run in distinct_runs(model)])
    saved = activation_factors(model, plan, options).saved
    return np.array([~at_end * saved, at_end * saved]) @ np.array(chunk_blocks(model, plan)).T


class HeldWeights(NamedTuple):
    """Parameters of every stage, as in `StageWeights`.

    Attributes:
        count: [*plan, stage, group]
        largest_unit, largest_rest, root: [*plan, stage]
    """

    count: Floats
    largest_unit: Floats
    largest_rest: Floats
    root: Floats


def held_weights(model: Workload, plan: ParallelPlan) -> HeldWeights:
    """Parameters of the stages; depends on the layers of the chunks, tp and ep alone."""
    held = [chunks_of_stage(plan, stage) for stage in range(plan.pp)]
    weights = stage_weights(model, plan, chunk_blocks(model, plan), held)
    return HeldWeights(*(np.stack([getattr(own, name) for own in weights]) for name in HeldWeights._fields))


def held_activations(model: Workload, plan: ParallelPlan) -> Floats:
    """Blocks in flight, [stage, kind]; depends on the chunks, schedule and micro-batches alone.

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
    one_block = np.maximum(activations.forward_peak, activations.backward_peak)[..., None, :]
    temporary = (one_block * (saved > 0.0)).max(axis=-1)
    temporary = np.maximum(temporary, per_parameter(states.update) - kept)  # it starts when activations are gone
    copies = (options.n_gathered_layers + 1) * held.largest_unit + held.root
    bucket = np.minimum(options.bucket_elements, per_parameter(states.bucket))
    gathered = np.minimum(by_plan(states.gathered_element) * copies, per_parameter(states.gathered))
    return StageMemory(
        parameters_bytes=per_parameter(states.parameters)
        + by_plan(states.copied_element) * (held.count.sum(axis=-1) - held.root),
        gradients_bytes=per_parameter(states.gradients)
        + by_plan(states.freed_gradient) * np.maximum(held.largest_unit, held.largest_rest),
        optimizer_bytes=per_parameter(states.optimizer) + by_plan(states.optimizer_rest) * held.root,
        activations_bytes=kept,
        temporary_bytes=temporary,
        workspace_bytes=by_plan(activations.workspace),
        communication_bytes=by_plan(activations.pipeline) + by_plan(states.bucket_element) * bucket + gathered,
        framework_bytes=options.context_bytes + options.nccl_bytes * by_plan(states.n_communicators),
        fragmentation_bytes=options.fragmentation * (kept + temporary),
    )


WORTH_SAYING = 0.01  # of the activations: what saves less is as good as nothing


def memory_notes(model: Workload, cluster: Cluster, plan: ParallelPlan, options: MemoryOptions) -> Iterator[str]:
    """Sentences about settings that cost time and save next to nothing, and about logits that need not be there."""
    yield from _loss_notes(model, cluster, plan, options)
    if plan.recompute == "none":
        return
    without = memory(model, cluster, replace(plan, recompute="none", **OPTIONS), options)
    own = memory(model, cluster, plan, options)
    whole = without.worst.activations_bytes
    saved = whole - own.stages[without.stage].activations_bytes
    if saved <= WORTH_SAYING * whole:
        yield f"recompute: {plan.recompute}{_modules(plan)} saves {format_bytes(max(saved, 0.0))} per device.{_reason(plan)}"


LOGITS_WORTH_SAYING = 0.1  # of a device's memory


def _loss_notes(model: Workload, cluster: Cluster, plan: ParallelPlan, options: MemoryOptions) -> Iterator[str]:
    other = replace(plan, software=replace(plan.software, cross_entropy=LINEAR))
    more = memory(model, cluster, plan, options).total_bytes - memory(model, cluster, other, options).total_bytes
    if more > LOGITS_WORTH_SAYING * cluster.device.hbm_bytes:
        own = plan.software.cross_entropy or "eager"
        yield f"software.cross_entropy: {own} takes {format_bytes(more)} more per device than linear."


def _modules(plan: ParallelPlan) -> str:
    return f" of {', '.join(plan.recompute_modules)}" if plan.recompute == "selective" else ""


def _reason(plan: ParallelPlan) -> str:
    if plan.recompute != "selective" or not plan.is_flash:
        return ""
    return " Fused attention keeps no scores. Name other recompute_modules, or use recompute: none."
