"""A sequence length that a row does not state: from its own rates, from rows beside it, or the usual one."""

from __future__ import annotations

from math import log

from ..kind import UnsupportedRowError
from ..model import model_of_record, preset_named
from ..record import StepRecord
from .assumption import Assumption, assuming
from .peers import Peers

USUAL = 2048  # of published pre-training before 2023; default of MaxText (`max_target_length`)
LONGEST = 8192  # of pre-training; a model's own limit may be that of a later extension
EXACT = 0.02  # relative; rates are rounded
POWERS = tuple(2**k for k in range(9, 18))  # lengths that FLOPs are held against
COUNTED = 0.05  # relative, of FLOPs: whether heads, norms or half of the scores count differs between sources


def with_seq_len(record: StepRecord, peers: Peers) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with a sequence length, if it has none."""
    if record.seq_len is not None:
        return record, ()
    own = _from_rates(record)
    if own is not None:
        return assuming(record, "tokens per second, step time and batch make it", {"seq_len": own})
    counted = _from_flops(record)
    if counted is not None:
        return assuming(record, "FLOP/s, step time and batch make it", {"seq_len": counted})
    beside = peers.value("seq_len", record)
    if beside is not None:
        return assuming(record, "as other rows of the source", {"seq_len": beside})
    preset = preset_named(record.model_name)
    if preset is not None:
        return assuming(record, "what the model was trained at", {"seq_len": min(preset.max_seq_len, LONGEST)})
    return assuming(record, "the usual one", {"seq_len": USUAL})


def _from_rates(record: StepRecord) -> int | None:
    if not (record.tokens_per_s_per_gpu and record.n_gpus and record.measured_s and record.global_batch):
        return None
    found = record.tokens_per_s_per_gpu * record.n_gpus * record.measured_s / record.global_batch
    nearest = 128 * round(found / 128)
    return nearest if nearest and abs(found / nearest - 1.0) < EXACT else None


def _from_flops(record: StepRecord) -> int | None:
    """The power of two whose FLOPs per sequence, in some convention, are those that the row's FLOP/s, time and batch make."""
    if not (record.tflops_per_gpu and record.n_gpus and record.measured_s and record.global_batch):
        return None
    try:
        model = model_of_record(record)
    except UnsupportedRowError:
        return None
    done = record.tflops_per_gpu * 1e12 * record.n_gpus * record.measured_s / record.global_batch
    off = {
        (length, causal, recompute): abs(
            log(done / (length * model.train_flops_per_token(length, causal=causal, recompute=recompute)))
        )
        for length in POWERS
        for causal in (True, False)
        for recompute in ("none", "full")
    }
    nearest = min(off, key=lambda one: off[one])
    return nearest[0] if off[nearest] < COUNTED else None
