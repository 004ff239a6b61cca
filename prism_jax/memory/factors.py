"""What decides the memory of a device, apart from how many parameters and micro-batches a stage holds. Bytes.

`StateFactors` depend on how states are sharded, `ActivationFactors` on the shape of a micro-batch and on recomputation: a sweep
over plans makes each of them once. Arrays may have leading axes [*plan].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .._typing import Floats
from ..framework.memory_options import MemoryOptions
from ..partition.weights import group_splits, state_ranks, trained_groups
from ..plan.plan import ParallelPlan
from ..plan.precision import QUANTISED
from ..plan.state_dtypes import ELEMENT_BYTES
from ..workload.base import Block, Workload, frozen_groups, kinds_of, total_bytes

_FP32_STATES = 12.0  # master copy and two moments


class StateFactors(NamedTuple):
    """Bytes per parameter of a stage, after tensor and expert parallelism, by group of parameters.

    Attributes:
        parameters, gradients, optimizer: [*plan, group] of the states a device keeps.
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
    optimizer: Floats
    bucket: Floats
    gathered: Floats
    gathered_element: Floats
    copied_element: Floats
    update: Floats
    bucket_element: Floats
    n_communicators: Floats


class ActivationFactors(NamedTuple):
    """Bytes per micro-batch.

    Attributes:
        saved: [*plan, kind] kept between forward and backward, by kind of block.
        forward_peak: [*plan, kind] held for a moment while a block's forward runs (the loss).
        backward_peak: [*plan] held for a moment while one block's gradients are computed.
        pipeline: [*plan] activation and gradient buffers of the neighbours, in and out.
        workspace: [*plan] scratch of matrix products, which the allocator holds all the time; not per micro-batch.
    """

    saved: Floats
    forward_peak: Floats
    backward_peak: Floats
    pipeline: Floats
    workspace: Floats


def state_factors(model: Workload, plan: ParallelPlan, rules: MemoryOptions) -> StateFactors:
    """How `plan` shards what it keeps per parameter."""
    splits = group_splits(model, plan)
    whole, states = np.ones_like(splits), 1.0 / np.maximum(state_ranks(plan) / splits, 1.0)
    parameters = 1.0 / np.maximum(plan.shard_group / splits, 1.0) if plan.shard_group > 1 else whole
    trained = trained_groups(model, plan)
    parameters_bytes, frozen_element = _group_bytes(model, plan)
    by_parameter = plan.sharding in ("fsdp", "hsdp")
    buckets = plan.zero_stage >= 2 and plan.shard_group == 1
    degrees = (plan.tp, plan.cp, plan.dp, plan.pp, plan.ep)
    return StateFactors(
        parameters=parameters_bytes * parameters,
        gradients=trained * _gradient_bytes(plan, rules) * (states if by_parameter or plan.zero_stage >= 2 else whole),
        optimizer=trained * _optimizer_bytes(plan, rules) * (states if by_parameter or plan.zero_stage >= 1 else whole),
        bucket=trained * (1.0 - states) if buckets else np.zeros_like(splits),
        gathered=np.minimum(parameters_bytes, plan.element_bytes) * (1.0 - parameters),
        gathered_element=np.array(frozen_element if plan.shard_group > 1 else 0.0),
        copied_element=np.array(_fp8_copy_bytes(plan, rules)),
        update=trained * _update_bytes(plan, rules) * (states if plan.zero_stage >= 1 else whole),
        bucket_element=np.array(_buffer_bytes(plan, rules)),
        n_communicators=np.array(float(sum(degree > 1 for degree in degrees))),
    )


def _group_bytes(model: Workload, plan: ParallelPlan) -> tuple[Floats, float]:
    """[group] bytes of a parameter that is kept, and of one that is gathered; frozen ones have a format of their own."""
    frozen, own = frozen_groups(model, plan), _parameter_bytes(plan)
    kept = np.array([frozen.get(name, own) for name, _ in model.groups(plan)])
    return kept, min(frozen.values(), default=plan.element_bytes)


def _keeps_master(plan: ParallelPlan) -> bool:
    """FSDP keeps the sharded parameters themselves (they are what Adam updates) and casts when it gathers."""
    return plan.sharding in ("fsdp", "hsdp")


def _parameter_bytes(plan: ParallelPlan) -> float:
    """In fp8 a parameter and its transposed copy take as much as one in 16 bits."""
    return plan.state_dtypes.main_params_bytes if _keeps_master(plan) else plan.element_bytes


def _fp8_copy_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    has_copies = plan.dtype in QUANTISED and not plan.state_dtypes.fp8_params and plan.shard_group == 1
    return rules.fp8_copy_bytes * QUANTISED[plan.dtype].input_bytes if has_copies else 0.0


def _optimizer_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    if plan.offload_optimizer:
        return 0.0
    dtypes = plan.state_dtypes
    has_master = not _keeps_master(plan) and plan.element_bytes == 2.0
    master = dtypes.main_params_bytes if has_master else 0.0
    return rules.optimizer_bytes - _FP32_STATES + master + dtypes.moments_bytes


def _buffer_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    """Of the buffer that gradients are summed in; FSDP's have the format of its parameters."""
    if _keeps_master(plan):
        return _parameter_bytes(plan)
    if plan.state_dtypes.grad_reduce is not None:
        return ELEMENT_BYTES[plan.state_dtypes.grad_reduce]
    own = {
        "fp32": 4.0,
        "fp16": min(rules.grad_bytes, 2.0),
    }  # code for fp16 sums in fp16: Megatron-LM, DeepSpeed `FP16_Optimizer`
    return own.get(plan.dtype, rules.grad_bytes)


def _gradient_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    in_model_dtype = rules.model_grad_bytes if plan.dp > 1 and not _keeps_master(plan) else 0.0
    return _buffer_bytes(plan, rules) + in_model_dtype


def _update_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    """Of the copy of a buffer in 16 bits, in the format that the optimizer reads."""
    wanted = ELEMENT_BYTES[plan.state_dtypes.main_grads]
    return wanted if not _keeps_master(plan) and wanted > _buffer_bytes(plan, rules) else 0.0


def activation_factors(model: Workload, plan: ParallelPlan, rules: MemoryOptions) -> ActivationFactors:
    """What a micro-batch of `plan` leaves behind, by block of the model."""
    blocks = [model.block(kind, plan) for kind in kinds_of(model)]

    def each(of: Callable[[Block], float]) -> Floats:
        return np.array([of(block) for block in blocks])

    ranks = plan.tp if plan.sequence_parallel else 1
    return ActivationFactors(
        saved=each(lambda block: total_bytes(block.saved(rules))),
        forward_peak=each(lambda block: block.forward_peak_bytes(rules)),
        backward_peak=np.array(
            each(lambda block: block.backward_peak_bytes(rules)).max()
            + each(lambda block: block.recomputed_bytes(rules)).max()
        ),
        pipeline=np.array(4 * model.boundary_bytes(plan) / ranks if plan.pp > 1 else 0.0),
        workspace=np.array(rules.workspace_bytes + (rules.expert_workspace_bytes if model.has_experts else 0.0)),
    )
