"""Micro-batch and global batch, in sequences, of a row of a steps table, from its columns or from words of its notes."""

from __future__ import annotations

import re

from .kind import UnsupportedRowError
from .record import StepRecord

_TOKENS = re.compile(
    r"\b(\d{1,12}(?:\.\d{1,12})?)\s{0,9}M[ -]tokens?\b(?:\s{0,9}(?:/|per)\s{0,9}|\s{1,9})batch", re.IGNORECASE
)
_MEBI = 2**20  # "16M tokens" of a batch that is a power of two of sequences: 2048 x 8192
_PER_REPLICA = re.compile(r"\bbatch per DP (\d{1,9})\b", re.IGNORECASE)
_ACCUMULATION = re.compile(r"\b(?:GAS|GA|grad_accum|gradient accumulation) (\d{1,9})\b", re.IGNORECASE)


def batches_of_record(record: StepRecord, dp: int, seq_len: int) -> tuple[int, int]:
    """Micro-batch and global batch in sequences.

    Notes:
        A blank micro-batch is 1, on TPU all of a chip's sequences (MaxText accumulates no gradients by default). A blank
        global batch is read from the notes (tokens per batch, batch per replica, accumulation steps), else one micro-batch
        per replica.

    Raises:
        UnsupportedRowError: neither is stated, or the global batch is no multiple of dp * micro-batch.
    """
    global_batch = record.global_batch or noted_global_batch(record, dp, seq_len)
    if global_batch is None and record.micro_batch is None:
        raise UnsupportedRowError("batch not stated")
    micro_batch = record.micro_batch or _default_micro_batch(record, dp, global_batch)
    global_batch = global_batch or micro_batch * dp
    if global_batch % (dp * micro_batch):
        raise UnsupportedRowError("global batch is no multiple of dp * micro-batch")
    return micro_batch, global_batch


def _default_micro_batch(record: StepRecord, dp: int, global_batch: int | None) -> int:
    if not record.gpu.lower().startswith("tpu") or global_batch is None:
        return 1
    if global_batch % dp:
        raise UnsupportedRowError("parallel degrees not published")  # fewer sequences than chips need another axis
    return global_batch // dp


def noted_global_batch(record: StepRecord, dp: int, seq_len: int) -> int | None:
    """Sequences of a step by the words of the notes; None if they say nothing."""
    tokens = _TOKENS.search(record.notes)
    if tokens:
        return round(float(tokens[1]) * _MEBI / seq_len)
    per_replica = _PER_REPLICA.search(record.notes)
    if per_replica:
        return int(per_replica[1]) * dp
    steps = _ACCUMULATION.search(record.notes)
    return int(steps[1]) * record.micro_batch * dp if steps and record.micro_batch else None
