"""Sequences that a row of a steps table packs of many short documents, whose tokens attend to their own document alone.

NVIDIA's fine-tuning recipes (NeMo `finetune_recipe(packed_sequence=True)`, Megatron-Bridge `PackedSequenceSpecs`) pack SQuAD,
whose documents (a passage of 120 words, a question and an answer; arXiv 1606.05250) have 150 to 250 tokens, and give attention
kernels the bounds of every one of them: scores between documents are never computed.
"""

from __future__ import annotations

import re

from .....workload.transformer.spec import WindowSpec
from ..record import StepRecord

_RECIPES = ((re.compile("NVIDIA"), 256),)  # source, tokens of a document
_FINE_TUNING = re.compile(r"\btask (?:sft|lora)\b|\bfine-?tun", re.IGNORECASE)


def documents_of_record(record: StepRecord) -> WindowSpec | None:
    """What every token attends to where the recipe packs documents; None where it attends to the whole sequence."""
    if not _FINE_TUNING.search(record.notes):
        return None
    size = next((size for source, size in _RECIPES if source.search(record.source)), 0)
    return WindowSpec(size, ("chunked",)) if size and size < (record.seq_len or 0) else None
