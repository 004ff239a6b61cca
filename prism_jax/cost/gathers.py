"""Bytes of parameters that are gathered and of gradients that are reduced: collectives of a unit of them, and the copies around.

A rank of a group of `plan.shard_group` holds its share of the parameters of a unit (a layer, or embedding and head). They are
gathered before both passes, and the gradients reduced and scattered after the backward one. Blocks (`block_cost.py`), the end of
the step (`step_end.py`) and captured programs (`capture/from_job.py`) read the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..plan.fields import ELEMENT_BYTES
from ..plan.optimizers import has_master
from ..plan.plan import ParallelPlan
from ..workload.base.kernels import Kernel
from ..workload.base.workload import Comm
from .partition import sharing_ranks


def weight_bytes(plan: ParallelPlan, is_unit: bool = True) -> float:
    """Bytes of one parameter as it is gathered.

    Args:
        is_unit: it belongs to a layer, not to embedding or head, which stay in 16 bits under `state_dtypes.fp8_params`.
    """
    return 1.0 if plan.state_dtypes.fp8_params and is_unit else plan.element_bytes


def gradient_bytes(plan: ParallelPlan) -> float:
    """Bytes of one gradient as it is reduced across replicas: as `state_dtypes.grad_reduce` says, or as most software does.

    Notes:
        Megatron-LM reduces fp32 main gradients in bf16 training and fp16 gradients in fp16 training; parameter sharding, and
        software without a master copy, in the parameters' 16-bit type (`PURE` of llm-foundry, `bfSixteen` of fms-fsdp).
    """
    if plan.state_dtypes.grad_reduce is not None:
        return ELEMENT_BYTES[plan.state_dtypes.grad_reduce]
    if plan.dtype == "fp32":
        return 4.0
    return 2.0 if plan.dtype == "fp16" or plan.shard_group > 1 or not has_master(plan) else 4.0


class Gathered(NamedTuple):
    """Parameters of one group of a block on a device.

    Attributes:
        count: after tensor and expert parallelism.
        split: ranks of dp x cp among which the workload itself divides them; may be no whole number.
        frozen_bytes: of one of them, if it has no gradient; None: they are trained.
    """

    count: float
    split: float
    frozen_bytes: float | None = None


def gather_comms(plan: ParallelPlan, counts: Sequence[Gathered], is_unit: bool = True) -> list[Comm]:
    """Communication of one unit of parameters per device.

    Args:
        counts: by group.
        is_unit: as in `weight_bytes`.
    """
    if plan.shard_group == 1:
        return []
    stride, _ = plan.data_group
    comms: list[Comm] = []
    for count, split, frozen in counts:
        wide = weight_bytes(plan, is_unit) if frozen is None or frozen == plan.element_bytes else frozen
        own = _unit(plan, count, wide, round(stride * split), sharing_ranks(plan.shard_group, split))
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
        size = sharing_ranks(plan.shard_group, split)
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
