"""What decides the memory of a device, apart from how many parameters and micro-batches a stage holds. Bytes.

`StateFactors` depend on how states are sharded, `ActivationFactors` on the shape of a micro-batch and on recomputation: a sweep
over plans makes each of them once. Every field is a number of one plan, or an array over plans.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..framework.memory_options import MemoryOptions
from ..partition.weights import StageWeights
from ..plan.plan import ParallelPlan
from ..workload.transformer.saved_tensors import (
    embedding_saved_tensors,
    head_saved_tensors,
    layer_saved_tensors,
    total_bytes,
)
from ..workload.transformer.spec import TransformerSpec

_LOGIT_SAVED_BYTES = 4.0


class StateFactors(NamedTuple):
    """Bytes per parameter of a stage, after tensor and expert parallelism; (dense, expert) where experts shard less.

    Attributes:
        parameters, gradients, optimizer: of the states a device keeps.
        bucket: unsharded parameters whose gradients wait for their reduce-scatter (a share, not bytes), limited by the bucket.
        gathered: of what sharding left out and a device may hold for a moment.
        n_communicators: groups that communicate.
    """

    parameters_dense: float
    parameters_expert: float
    gradients_dense: float
    gradients_expert: float
    optimizer_dense: float
    optimizer_expert: float
    bucket_dense: float
    bucket_expert: float
    gathered_dense: float
    gathered_expert: float
    gathered_element: float  # bytes of one element of a gathered copy
    n_communicators: float


class ActivationFactors(NamedTuple):
    """Bytes per micro-batch.

    Attributes:
        dense_layer, moe_layer, embedding, head: saved between forward and backward.
        loss, backward: held for a moment while the loss, and one layer's gradients, are computed.
        pipeline: activation and gradient buffers of the neighbours, in and out.
    """

    dense_layer: float
    moe_layer: float
    embedding: float
    head: float
    loss: float
    backward: float
    pipeline: float


def state_factors(plan: ParallelPlan, options: MemoryOptions) -> StateFactors:
    """How `plan` shards what it keeps per parameter."""
    dense, expert = (
        _shares(plan, weights) for weights in (StageWeights(1.0, 0.0, 0.0, 0.0), StageWeights(0.0, 1.0, 0.0, 0.0))
    )
    parameter, gradient, optimizer = (
        _parameter_bytes(plan),
        _gradient_bytes(plan, options),
        _optimizer_bytes(plan, options),
    )
    element = 4.0 if plan.dtype == "fp32" else 2.0
    return StateFactors(
        *(parameter * share.parameters for share in (dense, expert)),
        *(gradient * share.gradients for share in (dense, expert)),
        *(optimizer * share.optimizer for share in (dense, expert)),
        *(share.bucket for share in (dense, expert)),
        *(element * (1.0 - share.parameters) for share in (dense, expert)),
        gathered_element=element if plan.shard_group > 1 else 0.0,
        n_communicators=sum(degree > 1 for degree in (plan.tp, plan.cp, plan.dp, plan.pp, plan.ep)),
    )


class _Shares(NamedTuple):
    """Which share of a stage's parameters, gradients and optimizer state a device keeps, and what waits in buckets."""

    parameters: float
    gradients: float
    optimizer: float
    bucket: float


def _shares(plan: ParallelPlan, weights: StageWeights) -> _Shares:
    states = weights.sharded_states(plan)
    by_parameter = plan.sharding in ("fsdp", "hsdp")
    return _Shares(
        weights.sharded_parameters(plan),
        states if by_parameter or plan.zero_stage >= 2 else 1.0,
        states if plan.sharding != "none" or plan.zero_stage >= 1 else 1.0,
        1.0 - states if plan.zero_stage >= 2 and plan.shard_group == 1 else 0.0,
    )


def _parameter_bytes(plan: ParallelPlan) -> float:
    """FSDP keeps the sharded fp32 parameters themselves (they are Adam's master copy) and casts when it gathers."""
    return 4.0 if plan.dtype == "fp32" or plan.sharding in ("fsdp", "hsdp") else 2.0


def _optimizer_bytes(plan: ParallelPlan, options: MemoryOptions) -> float:
    has_master = _parameter_bytes(plan) == 2.0
    return options.optimizer_bytes if has_master else options.optimizer_bytes - 4.0


def _gradient_bytes(plan: ParallelPlan, options: MemoryOptions) -> float:
    if plan.sharding in ("fsdp", "hsdp"):
        return 4.0
    in_model_dtype = options.model_grad_bytes if plan.dp > 1 else 0.0
    return (4.0 if plan.dtype == "fp32" else options.grad_bytes) + in_model_dtype


def activation_factors(model: TransformerSpec, plan: ParallelPlan, options: MemoryOptions) -> ActivationFactors:
    """What a micro-batch of `plan` leaves behind, by piece of the model."""
    tokens = plan.micro_batch * plan.seq_len / plan.cp
    local = tokens / (plan.tp if plan.sequence_parallel else 1)
    dense, moe = (
        total_bytes(layer_saved_tensors(model, plan, is_moe=is_moe, options=options)) for is_moe in (False, True)
    )
    last = moe if model.is_moe_layer(model.n_layers - 1) else dense
    head = total_bytes(head_saved_tensors(model, plan, options))
    return ActivationFactors(
        dense_layer=dense,
        moe_layer=moe,
        embedding=total_bytes(embedding_saved_tensors(model, plan, options)),
        head=head + model.n_mtp * (head + last),  # loss of the main model, and per prediction module a layer and a loss
        loss=(options.logits_peak_bytes - _LOGIT_SAVED_BYTES) * tokens * model.vocab / plan.tp,
        backward=_backward_bytes(model, plan, tokens),
        pipeline=4 * 2.0 * local * model.hidden if plan.pp > 1 else 0.0,
    )


def _backward_bytes(model: TransformerSpec, plan: ParallelPlan, tokens: float) -> float:
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
    again = layer_saved_tensors(model, replace(plan, recompute="none"), is_moe=model.moe is not None)
    return max(0.0, total_bytes(again) - kept)
