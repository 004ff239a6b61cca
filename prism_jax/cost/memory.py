"""Memory of one device at its peak, in bytes: what the parallel plan needs against what the accelerator has.

Parameters, gradients and optimizer state by the sharding rules of ZeRO (arXiv 1910.02054) and Megatron-LM's distributed
optimizer; activations by the saved tensors of `cost.activations` times the micro-batches in flight under the schedule;
temporaries, communication buffers, framework and fragmentation on top. The worst pipeline stage decides.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from ..in_flight import in_flight_chunks
from ..plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.transformer import TransformerSpec
from .activations import embedding_saved_tensors, head_saved_tensors, layer_saved_tensors, total_bytes
from .chunks import chunks_of_stage, layers_of_chunks
from .memory_options import MEGATRON, MemoryOptions
from .weights import StageWeights, gathered_weight_bytes, stage_weights

_LOGIT_SAVED_BYTES = 4.0


@dataclass(frozen=True)
class StageMemory:
    """Peak bytes of one device of a pipeline stage."""

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float  # saved between forward and backward, all micro-batches in flight
    temporary_bytes: float  # loss computation, or one layer's backward and recompute
    communication_bytes: float  # gathered parameters, gradient buckets, pipeline buffers
    framework_bytes: float  # context, kernels, communicators
    fragmentation_bytes: float  # held by the caching allocator, not usable

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
    chunks = layers_of_chunks(model.n_layers, plan)
    stages = tuple(_stage_memory(model, plan, options, chunks, stage) for stage in range(plan.pp))
    return MemoryBreakdown(cluster.device.hbm_bytes, stages)


def _stage_memory(
    model: TransformerSpec, plan: ParallelPlan, options: MemoryOptions, chunks: tuple[range, ...], stage: int
) -> StageMemory:
    held = chunks_of_stage(plan, stage)
    weights = stage_weights(model, plan, chunks, held)
    activations = _activations_bytes(model, plan, options, chunks, stage)
    temporary = _temporary_bytes(model, plan, options, has_head=plan.n_chunk - 1 in held)
    communication = _communication_bytes(model, plan, options, weights)
    return StageMemory(
        parameters_bytes=_parameter_bytes(plan) * weights.sharded_parameters(plan),
        gradients_bytes=_gradients_bytes(plan, options, weights),
        optimizer_bytes=_optimizer_bytes(plan, options, weights),
        activations_bytes=activations,
        temporary_bytes=temporary,
        communication_bytes=communication,
        framework_bytes=_framework_bytes(plan, options),
        fragmentation_bytes=options.fragmentation * (activations + temporary),
    )


# --- model states ---


def _parameter_bytes(plan: ParallelPlan) -> float:
    """FSDP keeps the sharded fp32 parameters themselves (they are Adam's master copy) and casts when it gathers."""
    return 4.0 if plan.dtype == "fp32" or plan.sharding in ("fsdp", "hsdp") else 2.0


def _optimizer_bytes(plan: ParallelPlan, options: MemoryOptions, weights: StageWeights) -> float:
    has_master = _parameter_bytes(plan) == 2.0
    per_parameter = options.optimizer_bytes if has_master else options.optimizer_bytes - 4.0
    sharded = plan.zero_stage >= 1 or plan.sharding != "none"
    return per_parameter * (weights.sharded_states(plan) if sharded else weights.count)


def _gradients_bytes(plan: ParallelPlan, options: MemoryOptions, weights: StageWeights) -> float:
    if plan.sharding in ("fsdp", "hsdp"):
        return 4.0 * weights.sharded_states(plan)
    in_model_dtype = options.model_grad_bytes if plan.dp > 1 else 0.0
    per_parameter = (4.0 if plan.dtype == "fp32" else options.grad_bytes) + in_model_dtype
    return per_parameter * (weights.sharded_states(plan) if plan.zero_stage >= 2 else weights.count)


# --- activations and temporaries ---


def _activations_bytes(
    model: TransformerSpec, plan: ParallelPlan, options: MemoryOptions, chunks: tuple[range, ...], stage: int
) -> float:
    """Saved tensors of the stage's chunks (their mean) times the chunk-activations in flight, embedding and head included."""
    held = chunks_of_stage(plan, stage)
    in_flight = in_flight_chunks(plan, stage)
    layers = [_layer_bytes(model, plan, options, layer) for chunk in held for layer in chunks[chunk]]
    saved = sum(layers) * in_flight / len(held)
    if 0 in held:
        saved += total_bytes(embedding_saved_tensors(model, plan, options)) * in_flight / len(held)
    if plan.n_chunk - 1 in held:
        saved += _head_bytes(model, plan, options) * (plan.n_micro_batch if plan.schedule == "gpipe" else 1)
    return saved


def _layer_bytes(model: TransformerSpec, plan: ParallelPlan, options: MemoryOptions, layer: int) -> float:
    return total_bytes(layer_saved_tensors(model, plan, is_moe=model.is_moe_layer(layer), options=options))


def _head_bytes(model: TransformerSpec, plan: ParallelPlan, options: MemoryOptions) -> float:
    """Loss of the main model, and per multi-token-prediction module one more layer and loss."""
    head = total_bytes(head_saved_tensors(model, plan, options))
    if not model.n_mtp:
        return head
    return head + model.n_mtp * (head + _layer_bytes(model, plan, options, model.n_layers - 1))


def _temporary_bytes(model: TransformerSpec, plan: ParallelPlan, options: MemoryOptions, *, has_head: bool) -> float:
    """The larger of what the loss and what one layer's backward pass hold for a moment."""
    tokens = plan.micro_batch * plan.seq_len / plan.cp
    loss = (options.logits_peak_bytes - _LOGIT_SAVED_BYTES) * tokens * model.vocab / plan.tp
    return max(loss if has_head else 0.0, _backward_temporary_bytes(model, plan, tokens))


def _backward_temporary_bytes(model: TransformerSpec, plan: ParallelPlan, tokens: float) -> float:
    """Gradients at both sides of the MLP's activation and of its input, and what full recomputation brings back."""
    element = 4.0 if plan.dtype == "fp32" else 2.0
    width = model.ffn_hidden
    if model.moe is not None:
        width = max(width if model.moe.n_dense_first else 0, model.moe.top_k * model.moe.ffn_hidden)
    inner = element * tokens * width * model.n_mlp_matrices / plan.tp
    outer = 2 * element * tokens * model.hidden  # gathered input and its unreduced gradient
    return inner + outer + _recomputed_bytes(model, plan)


def _recomputed_bytes(model: TransformerSpec, plan: ParallelPlan) -> float:
    if plan.recompute != "full":
        return 0.0
    kept = total_bytes(layer_saved_tensors(model, plan))
    return max(
        0.0,
        total_bytes(layer_saved_tensors(model, replace(plan, recompute="none"), is_moe=model.moe is not None)) - kept,
    )


# --- communication and framework ---


def _communication_bytes(
    model: TransformerSpec, plan: ParallelPlan, options: MemoryOptions, weights: StageWeights
) -> float:
    tokens = plan.micro_batch * plan.seq_len / plan.cp / (plan.tp if plan.sequence_parallel else 1)
    pipeline = 4 * 2.0 * tokens * model.hidden if plan.pp > 1 else 0.0  # activation and gradient, in and out
    return pipeline + _bucket_bytes(plan, options, weights) + gathered_weight_bytes(plan, options, weights)


def _bucket_bytes(plan: ParallelPlan, options: MemoryOptions, weights: StageWeights) -> float:
    """Unsharded gradients waiting for their reduce-scatter; with replicated gradients the bucket is a view of the buffer."""
    if plan.zero_stage < 2 or plan.shard_group > 1:
        return 0.0
    unsharded = weights.count - weights.sharded_states(plan)
    return options.grad_bytes * min(options.bucket_elements, unsharded)


def _framework_bytes(plan: ParallelPlan, options: MemoryOptions) -> float:
    n_communicators = sum(degree > 1 for degree in (plan.tp, plan.cp, plan.dp, plan.pp, plan.ep))
    return options.context_bytes + options.nccl_bytes * n_communicators
