"""The micro-batch of a row that does not state it: as many sequences at once as fit, where nothing else asks for few."""

from __future__ import annotations

from dataclasses import replace

from .....errors import PrismError
from .....framework import framework_of
from .....memory.breakdown import memory
from .....plan.plan import ParallelPlan
from .....system.hardware import Cluster
from .....workload.base import Workload
from ..record import StepRecord

MOST_TOKENS = 65_536  # of a micro-batch: beyond, nothing is won


def with_usual_micro_batch(
    record: StepRecord, model: Workload, cluster: Cluster, plan: ParallelPlan, framework: str
) -> ParallelPlan:
    """The plan with the largest micro-batch that fits into memory, in powers of two, where the row states none.

    Pipelines keep one sequence, which keeps them busy; so do rows whose batch per replica is a single sequence.
    """
    local = plan.global_batch // plan.dp
    if record.micro_batch is not None or plan.pp > 1 or plan.micro_batch > 1 or local == 1:
        return plan
    sizes = [n for n in _powers(local) if local % n == 0 and n * plan.seq_len <= MOST_TOKENS * plan.cp]
    plans = [replace(plan, micro_batch=n) for n in sizes]
    return next((one for one in reversed(plans) if _fits(model, cluster, one, framework)), plan)


def _powers(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def _fits(model: Workload, cluster: Cluster, plan: ParallelPlan, framework: str) -> bool:
    try:
        needed = memory(model, cluster, plan, framework_of(framework).memory)
    except PrismError:
        return False
    return needed.total_bytes * (1.0 + framework_of(framework).memory_margin) <= cluster.device.hbm_bytes
