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
from ..partition.weights import group_splits, state_ranks
from ..plan.plan import ParallelPlan
from ..workload.base import Block, Workload, total_bytes


class StateFactors(NamedTuple):
    """Bytes per parameter of a stage, after tensor and expert parallelism, by group of parameters.

    Attributes:
        parameters, gradients, optimizer: [*plan, group] of the states a device keeps.
        bucket: [*plan, group] unsharded parameters whose gradients wait for their reduce-scatter (a share, not bytes), limited by
            the bucket.
        gathered: [*plan, group] of what sharding left out and a device may hold for a moment.
        gathered_element: [*plan] bytes of one element of a gathered copy.
        n_communicators: [*plan] groups that communicate.
    """

    parameters: Floats
    gradients: Floats
    optimizer: Floats
    bucket: Floats
    gathered: Floats
    gathered_element: Floats
    n_communicators: Floats


class ActivationFactors(NamedTuple):
    """Bytes per micro-batch.

    Attributes:
        saved: [*plan, kind] kept between forward and backward, by kind of block.
        forward_peak: [*plan, kind] held for a moment while a block's forward runs (the loss).
        backward_peak: [*plan] held for a moment while one block's gradients are computed.
        pipeline: [*plan] activation and gradient buffers of the neighbours, in and out.
    """

    saved: Floats
    forward_peak: Floats
    backward_peak: Floats
    pipeline: Floats


def state_factors(model: Workload, plan: ParallelPlan, rules: MemoryOptions) -> StateFactors:
    """How `plan` shards what it keeps per parameter."""
    splits = group_splits(model, plan)
    whole, states = np.ones_like(splits), 1.0 / np.maximum(state_ranks(plan) / splits, 1.0)
    parameters = 1.0 / np.maximum(plan.shard_group / splits, 1.0) if plan.shard_group > 1 else whole
    by_parameter = plan.sharding in ("fsdp", "hsdp")
    buckets = plan.zero_stage >= 2 and plan.shard_group == 1
    degrees = (plan.tp, plan.cp, plan.dp, plan.pp, plan.ep)
    return StateFactors(
        parameters=_parameter_bytes(plan) * parameters,
        gradients=_gradient_bytes(plan, rules) * (states if by_parameter or plan.zero_stage >= 2 else whole),
        optimizer=_optimizer_bytes(plan, rules) * (states if by_parameter or plan.zero_stage >= 1 else whole),
        bucket=1.0 - states if buckets else np.zeros_like(splits),
        gathered=plan.element_bytes * (1.0 - parameters),
        gathered_element=np.array(plan.element_bytes if plan.shard_group > 1 else 0.0),
        n_communicators=np.array(float(sum(degree > 1 for degree in degrees))),
    )


def _parameter_bytes(plan: ParallelPlan) -> float:
    """FSDP keeps the sharded fp32 parameters themselves (they are Adam's master copy) and casts when it gathers."""
    return 4.0 if plan.sharding in ("fsdp", "hsdp") else plan.element_bytes


def _optimizer_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    has_master = _parameter_bytes(plan) == 2.0
    return rules.optimizer_bytes if has_master else rules.optimizer_bytes - 4.0


def _gradient_bytes(plan: ParallelPlan, rules: MemoryOptions) -> float:
    if plan.sharding in ("fsdp", "hsdp"):
        return 4.0
    in_model_dtype = rules.model_grad_bytes if plan.dp > 1 else 0.0
    return (4.0 if plan.dtype == "fp32" else rules.grad_bytes) + in_model_dtype


def activation_factors(model: Workload, plan: ParallelPlan, rules: MemoryOptions) -> ActivationFactors:
    """What a micro-batch of `plan` leaves behind, by block of the model."""
    blocks = [model.block(run.kind, plan) for run in model.layout]

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
    )
