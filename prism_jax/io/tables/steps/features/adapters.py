"""Which adapters a row of a steps table trains: from its own columns and notes, else as its source's recipe has them.

Recipes: MLPerf's Llama-2-70B benchmark has rank 16 and dropout 0.1 on the fused query, key, value projection and on the output
projection (44.5 M parameters); NVIDIA's performance recipes (NeMo, Megatron-Bridge) have rank 16 on the first of the two alone
(`peft.target_modules = ['linear_qkv']`); torchtune's configs have rank 8 on attention and MLP; fms-acceleration's scenarios have
dropout 0.1 on the four projections of the attention, as MindFormers' configs have without dropout.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .....workload.transformer.adapter_spec import AdapterSpec
from ..record import StepRecord

_KINDS = ("lora", "qlora")
_NAME = re.compile(r"\bq?lora\b|_lora\b|\bpeft\b", re.IGNORECASE)
_NOTE = re.compile(r"\blora fine-?tun", re.IGNORECASE)
_RANK = re.compile(r"\b(?:r|rank)[ =]{1,9}(\d{1,9})\b", re.IGNORECASE)
_FOUR_BITS = (
    ("int4", re.compile(r"\bGPTQ\b", re.IGNORECASE)),
    ("nf4", re.compile(r"\bqlora\b|\bnf4\b", re.IGNORECASE)),
)
_USUAL = AdapterSpec(16)
_RECIPES = (
    (re.compile("mlcommons"), AdapterSpec(16, ("linear_qkv", "linear_proj"), dropout=0.1)),
    (re.compile("NVIDIA"), AdapterSpec(16, ("linear_qkv",))),
    (re.compile("torchtune"), AdapterSpec(8, ("all",))),
    (re.compile("fms-acceleration"), AdapterSpec(16, ("attention",), dropout=0.1)),
)


def adapters_of_record(record: StepRecord) -> AdapterSpec | None:
    """Adapters of a row that trains low-rank adapters alone; None for one that trains all parameters."""
    if not _trains_adapters(record):
        return None
    recipe = next((spec for source, spec in _RECIPES if source.search(record.source)), _USUAL)
    rank = _RANK.search(record.notes)
    return replace(
        recipe,
        rank=int(rank[1]) if rank else recipe.rank,
        quantised=_quantised(record),
        fused="fused_lora" in record.features,
    )


def _trains_adapters(record: StepRecord) -> bool:
    """By its kind where that is stated, else by words."""
    if record.kind:
        return record.kind in _KINDS
    return bool(_NAME.search(record.model_name) or _NOTE.search(record.notes))


def _quantised(record: StepRecord) -> str:
    """Format of the frozen matrices; four bits of another format than GPTQ's are nf4."""
    said = f"{record.notes} {record.features}"
    by_words = next((name for name, words in _FOUR_BITS if words.search(said)), "none")
    return "nf4" if by_words == "none" and record.kind == "qlora" else by_words
