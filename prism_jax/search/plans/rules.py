"""Which plans cannot run, and why: the rules of a plan's numbers (`rules.arithmetic`) for a block of plans at once.

A reason is a number per plan, 0 where nothing is in the way; the first rule that is broken counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...plan.plan import SHARDING
from ...rules.arithmetic import RULES, PlanNumbers
from ...workload.base import Workload
from .table import PlanTable

Reasons = NDArray[np.uint8]

FEASIBLE = 0
REASONS = (
    "feasible",
    *(rule.reason for rule in RULES),
    "fewer micro-batches than the schedule needs",
    "the device has too little memory",
)
MEMORY = REASONS.index("the device has too little memory")


def broken_rules(table: PlanTable, model: Workload) -> Reasons:
    """Reason [plan] of every plan that contradicts itself or the model; memory is looked at elsewhere."""
    layout, numbers = table.layout, _numbers(table, model)
    enough = layout.pipeline_schedule.enough_micro_batches(layout.pp, numbers.n_micro_batch, layout.virtual_stages)
    reason = np.zeros(len(table), dtype=np.uint8)
    for number, broken in reversed([*enumerate([*(rule.is_broken(numbers) for rule in RULES), ~enough], start=1)]):
        reason[broken] = number
    return reason


def _numbers(table: PlanTable, model: Workload) -> PlanNumbers:
    """Of all plans of a table, which share batch and sequence length."""
    plan = table.base
    return PlanNumbers(
        tp=table.tp,
        cp=table.cp,
        dp=table.dp,
        ep=table.ep,
        micro_batch=table.micro_batch,
        global_batch=plan.global_batch,
        seq_len=plan.seq_len,
        sequence_parallel=table.sequence_parallel,
        n_micro_batch=table.n_micro_batch,
        n_chunk=table.layout.n_chunk,
        dp_shard=table.dp_shard,
        is_hsdp=table.sharding == SHARDING.index("hsdp"),
        tied=table.tied,
        n_parts=model.splits(plan),
    )
