"""A batch that a row does not state: from its rates where they make one, else a usual one, on which a rate hardly depends."""

from __future__ import annotations

import re
from math import ceil, log

from .....framework import framework_of
from .....memory.breakdown import memory
from .....plan.plan import RECOMPUTE
from .....system.hardware import Cluster
from .....workload.transformer.spec import TransformerSpec
from ..batch import noted_global_batch
from ..divisors import divisors
from ..framework import framework_of_record
from ..plan import plan_of_record
from ..record import StepRecord
from .assumption import Assumption, assuming

TOKENS = 16384  # of a micro-batch that fills a device; fewer where they do not fit
MICRO_BATCHES_PER_STAGE = 4  # of a pipeline: its bubble is then a fifth
EXACT = 0.05  # relative; rates are rounded
CLOSE = 1.6  # most by which the number of micro-batches may change
_PER_DEVICE = re.compile(r"\b(\d{1,9}) per GPU\b", re.IGNORECASE)


def with_batch(
    record: StepRecord, model: TransformerSpec, cluster: Cluster
) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with a batch, if it has none; its sequence length and degrees are known.

    Raises:
        UnsupportedRowError: the plan cannot be known for another reason.
    """
    dp = _dp(record)
    is_stated = record.global_batch or record.micro_batch or noted_global_batch(record, dp, record.seq_len or 1)
    if is_stated:
        return record, ()
    exact = _from_rates(record, model, dp)
    if exact is not None:
        return assuming(record, "rate and step time make it", {"global_batch": exact})
    stated = _PER_DEVICE.search(record.notes)
    if stated:
        own = int(stated[1])
        return assuming(record, "batch of the source's example", {"micro_batch": own, "global_batch": own * dp})
    return _usual(record, model, cluster, dp)


def with_divided_batch(record: StepRecord) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with a micro-batch that divides its batch, where the last micro-batch of a step was smaller than the others.

    Notes:
        Sequences of the step stay as they are. The number of micro-batches is that of the source or as near to it as divisors
        allow; where none is within a factor of `CLOSE`, the record stays as it is.
    """
    dp, micro = _dp(record), record.micro_batch
    if not record.global_batch or not micro or record.global_batch % dp or (record.global_batch // dp) % micro == 0:
        return record, ()
    share = record.global_batch // dp
    n_stated = ceil(share / micro)
    n = min(divisors(share), key=lambda n: abs(log(n / n_stated)))
    if max(n / n_stated, n_stated / n) > CLOSE:
        return record, ()
    why = f"equal ones: {micro} leaves a smaller last one of {share}"
    return assuming(record, why, {"micro_batch": share // n})


def _dp(record: StepRecord) -> int:
    others = (record.tp or 1) * (record.pp or 1) * (record.cp or 1)
    return record.dp or max(1, (record.n_gpus or 1) // others)


def _from_rates(record: StepRecord, model: TransformerSpec, dp: int) -> int | None:
    """Sequences of a step; a rate in FLOP/s is taken as the model's own and gives the nearest multiple of dp."""
    seconds, seq_len, n = record.measured_s, record.seq_len or 1, record.n_gpus or 1
    if seconds and record.tokens_per_s_per_gpu:
        found = record.tokens_per_s_per_gpu * n * seconds / seq_len
        return round(found) if round(found) and abs(found / round(found) - 1.0) < EXACT else None
    if seconds and record.tflops_per_gpu:
        per_sequence = seq_len * model.train_flops_per_token(seq_len, causal=False, recompute="none")
        found = record.tflops_per_gpu * 1e12 * n * seconds / per_sequence
        return max(1, round(found / dp)) * dp
    return None


def _usual(
    record: StepRecord, model: TransformerSpec, cluster: Cluster, dp: int
) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The largest micro-batch of at most `TOKENS` tokens that fits into memory.

    Sharded parameters are gathered per micro-batch: there a large one with recomputation goes before a smaller one without.
    """
    n_micro_batch = MICRO_BATCHES_PER_STAGE * record.pp if record.pp and record.pp > 1 else 1
    options = framework_of(framework_of_record(record)).memory
    micro = 2 ** max(0, (TOKENS // (record.seq_len or 1)).bit_length() - 1)
    may_recompute = record.sharding in ("fsdp", "hsdp", "zero3") and record.recompute not in RECOMPUTE
    found = (record, ())
    while micro >= 1:
        batch: dict[str, int | str] = {"micro_batch": micro, "global_batch": micro * dp * n_micro_batch}
        for more in ({}, {"recompute": "full"}) if may_recompute else ({},):
            found = assuming(record, "a usual one: the rate hardly depends on it", batch | more)
            if memory(model, cluster, plan_of_record(found[0]), options).fits:
                return found
        micro //= 2
    return found
