"""Gathering of sharded parameters (FSDP, HSDP, ZeRO-3) inside the ops, and scattering of their gradients.

Every layer's weights are gathered before its forward and again before its backward pass, its gradients are reduced and scattered
after it, for every micro-batch (arXiv 2304.11277). Under `overlap.dp` the next layer is prefetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..plan.plan import ParallelPlan
from ..plan.state_dtypes import ELEMENT_BYTES
from ..workload.base import Comm
from ..workload.kernels import Kernel


def weight_bytes(plan: ParallelPlan, is_unit: bool = True) -> float:
    """Bytes of one parameter as it is gathered.

    Args:
        is_unit: it belongs to a layer, not to embedding or head, which stay in 16 bits under `state_dtypes.fp8_params`.
    """
    return 1.0 if plan.state_dtypes.fp8_params and is_unit else plan.element_bytes


def gradient_bytes(plan: ParallelPlan) -> float:
    """Bytes of one gradient as it is reduced across replicas: as `state_dtypes.grad_reduce` says, or as most software does.

    Notes:
        Megatron-LM reduces fp32 main gradients in bf16 training and fp16 gradients in fp16 training; parameter sharding
        reduces in the parameters' 16-bit type (the `PURE` and `bfSixteen` policies of llm-foundry and fms-fsdp).
    """
    if plan.state_dtypes.grad_reduce is not None:
        return ELEMENT_BYTES[plan.state_dtypes.grad_reduce]
    if plan.dtype == "fp32":
        return 4.0
    return 2.0 if plan.dtype == "fp16" or plan.shard_group > 1 else 4.0


class Gathered(NamedTuple):
    """Parameters of one group of a block on a device.

    Attributes:
        count: after tensor and expert parallelism.
        split: ranks among which the workload itself divides them.
        frozen_bytes: of one of them, if it has no gradient; None: they are trained.
    """

    count: float
    split: int
    frozen_bytes: float | None = None


def gather_comms(plan: ParallelPlan, counts: Sequence[Gathered], is_unit: bool = True) -> list[Comm]:
    """Communication of one unit of parameters per device.

    Args:
        counts: by group.
        is_unit: as in `weight_bytes`.
    """
    if plan.shard_group == 1:
        return []
    stride = plan.stride("dp")
    comms: list[Comm] = []
    for count, split, frozen in counts:
        wide = weight_bytes(plan, is_unit) if frozen is None or frozen == plan.element_bytes else frozen
        own = _unit(plan, count, wide, stride * split, max(plan.shard_group // split, 1))
        comms += own if frozen is None else own[:2]  # what is frozen has no gradients to scatter
    return comms


def copy_kernels(plan: ParallelPlan, counts: Sequence[Gathered], is_unit: bool = True) -> list[Kernel]:
    """Copies between the parameters of a unit and the buffers of `gather_comms`, where a plan has them.

    Notes:
        Before both passes a rank copies its own share into the buffer of the all-gather and, later, all of it out of it;
        after the backward pass the gradients into the buffer of the reduce-scatter, in the format that it adds in.

    Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: `all_gather_copy_in`, `split_with_sizes_copy` and
        `chunk_cat`; the last two run on the stream that computes.
    """
    if plan.shard_group == 1 or not plan.shard_copies:
        return []
    kernels: list[Kernel] = []
    for count, split, frozen in counts:
        size = max(plan.shard_group // split, 1)
        if size == 1 or count == 0.0:
            continue
        wide = weight_bytes(plan, is_unit) if frozen is None else frozen
        moved = 2.0 * wide * count
        for phase in ("F", "B"):
            kernels.append(Kernel("gather_copy_in", phase, "memory", 0.0, moved / size))
            kernels.append(Kernel("gather_copy_out", phase, "memory", 0.0, moved))
        if frozen is None:
            n_bytes = (plan.element_bytes + gradient_bytes(plan)) * count
            kernels.append(Kernel("scatter_copy_in", "B", "memory", 0.0, n_bytes))
    return kernels


def _unit(plan: ParallelPlan, count: float, wide: float, stride: int, size: int) -> list[Comm]:
    if size == 1 or count == 0.0:
        return []
    beside = "chunk" if plan.overlap.dp else ""
    gather = Comm("dp", "all_gather", "F", wide * count, stride, size, beside)
    scatter = gather._replace(kind="reduce_scatter", phase="B", n_bytes=gradient_bytes(plan) * count)
    return [gather, gather._replace(phase="B"), scatter]
