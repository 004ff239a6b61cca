"""Which plans cannot run, and why: the rules of `plan_check` for a block of plans at once.

A reason is a number per plan, 0 where nothing is in the way; the first rule that is broken counts. `tests` hold it against
`plan.check.problems` plan by plan.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...plan.plan import SHARDING
from ...rules.check import MAX_CHUNK_RUNS
from ...workload.base import Workload
from .table import PlanTable

Reasons = NDArray[np.uint8]

FEASIBLE = 0
REASONS = (
    "feasible",
    "the batch is not a multiple of dp * micro_batch",
    "more chunk runs than are simulated",
    "the sequence is not a multiple of cp",
    "the sequence is not a multiple of cp * tp, as sequence parallelism needs",
    "tp does not divide the attention heads",
    "ep does not divide the experts",
    "ep does not divide dp * cp",
    "dp_shard does not divide dp",
    "experts or sharding tie ranks that do not divide dp",
    "fewer micro-batches than the schedule needs",
    "the device has too little memory",
)
MEMORY = REASONS.index("the device has too little memory")


def broken_rules(table: PlanTable, model: Workload) -> Reasons:
    """Reason [plan] of every plan that contradicts itself or the model; memory is looked at elsewhere."""
    plan, layout = table.base, table.layout
    step = table.dp * table.micro_batch
    m = table.n_micro_batch
    splits = model.splits(plan)
    hsdp = table.sharding == SHARDING.index("hsdp")
    rules = [
        plan.global_batch % step != 0,
        m * layout.n_chunk > MAX_CHUNK_RUNS,
        plan.seq_len % table.cp != 0,
        (table.sequence_parallel == 1) & ((plan.seq_len // table.cp) % table.tp != 0),
        splits["tp"].n % table.tp != 0,
        splits["ep"].n % table.ep != 0,
        (table.dp * table.cp) % table.ep != 0,
        hsdp & (table.dp % np.maximum(table.dp_shard, 1) != 0),
        table.dp % table.tied != 0,
        ~layout.pipeline_schedule.enough_micro_batches(layout.pp, m, layout.virtual_stages),
    ]
    reason = np.zeros(len(table), dtype=np.uint8)
    for number, broken in reversed([*enumerate(rules, start=1)]):
        reason[broken] = number
    return reason
