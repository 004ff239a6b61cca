"""From a row of a table of published steps to the TransformerSpec that it trains.

The preset of its name, else the row's sizes in the style of its family; with its adapters, on sequences packed
as its recipe has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import isqrt, log

from experiments.step_tables.records import StepRecord, UnsupportedRowError
from prism_jax.core.bounds import MOST_SAMPLES
from prism_jax.core.errors import SpecError
from prism_jax.workload import catalog
from prism_jax.workload.transformer.mixers import WindowSpec
from prism_jax.workload.transformer.sizes import AdapterSpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec


def divisors(n: int) -> Iterator[int]:
    """All divisors of `n >= 1`, rising, in a time that grows with its root; of a size that no model or plan has `n` alone."""
    if n > MOST_SAMPLES:
        yield n
        return
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    yield from small
    yield from (n // d for d in reversed(small) if d * d != n)


# From a row of a steps table to a TransformerSpec: the preset of its name, else the row's sizes in the style of its
# family.

GATED = re.compile(
    r"llama|mi[sx]tral|mathstral|qwen|deepseek|kimi|gpt[\s_-]*oss|grok|nanotron|baichuan|aquila|glm", re.IGNORECASE
)
AS_STATED = 0.05  # of the stated number of parameters, a logarithm: vocabularies and rounding
_DEFAULT_VOCAB = {True: 32000, False: 51200}  # Llama-2's tokenizer; GPT-2's, padded as in Megatron-LM


def model_of_record(record: StepRecord) -> TransformerSpec:
    """The architecture of a row.

    Notes:
        Blank sizes come from the preset of that name. Without one: key-value heads as heads, heads of 128 columns
        or as near to that as tensor parallelism divides, MLP of four times the hidden size (plain) and the vocabulary of the
        family. Whether the MLP is gated follows from the stated number of parameters where one of both meets it.

    Raises:
        UnsupportedRowError: sizes that nobody published.
    """
    preset = preset_named(record.model_name)
    if preset is not None and (record.hidden is None or record.hidden == preset.hidden):
        return _adapted(preset, record)
    if record.n_layers is None or record.hidden is None:
        raise UnsupportedRowError("architecture not published")
    return _from_sizes(record, record.n_layers, record.hidden)


@cache  # a name that is none costs a search for the nearest ones
def preset_named(name: str) -> TransformerSpec | None:
    """Shipped model of that name, without remarks such as "(4 layers)" or "[sft]"; None if there is none."""
    bare = _without_remark(name)
    if not bare:
        return None
    if re.match(r"kimi[\s_-]*k2", bare, re.IGNORECASE):
        return catalog.model("kimi-k2")
    try:
        return catalog.model(bare)
    except SpecError:
        return None


def _without_remark(name: str) -> str:
    """`name` up to its first bracket, where it ends with one."""
    is_remark = name.rstrip().endswith((")", "]"))
    opening = min((at for bracket in "([" if (at := name.find(bracket)) >= 0), default=len(name))
    return name[:opening].rstrip() if is_remark else name


def _adapted(preset: TransformerSpec, record: StepRecord) -> TransformerSpec:
    """The preset with the counts the row states; layers may be fewer than in the full model."""
    n_layers = record.n_layers or preset.n_layers
    changes: dict[str, object] = {"n_layers": n_layers, "max_seq_len": max(preset.max_seq_len, record.seq_len or 0)}
    if record.vocab is not None:
        changes["vocab"] = record.vocab
    if preset.moe is not None:
        changes |= _experts_of_fewer_layers(preset.moe, record, n_layers)
    elif record.ffn is not None:
        changes["ffn_hidden"] = record.ffn
    if preset.mla is None and record.n_heads is not None and not preset.head_dim:
        changes["n_heads"] = record.n_heads
        changes["n_kv_heads"] = record.n_kv_heads or preset.n_kv_heads
    return replace(preset, **changes)  # pyright: ignore[reportArgumentType]


# Its launcher of Megatron-LM has, for DeepSeek-V2 and V3 alike, --moe-layer-freq ([0]*1+[1]*(layers - 1)), no --mtp-num-layers,
# and --moe-expert-capacity-factor 1 with padding to it (simu_tools/megatron_scripts/scripts/run_pretrain_deepseekv2.sh).
_ONE_DENSE_LAYER = "MooreThreads/SimuMax"


def _experts_of_fewer_layers(moe: MoESpec, record: StepRecord, n_layers: int) -> dict[str, object]:
    """Which layers have experts, as a source says, else as many dense ones first as in the full model."""
    if record.source == _ONE_DENSE_LAYER:
        return {"moe": replace(moe, n_dense_first=1, capacity_factor=1.0), "n_mtp": 0}
    first = min(moe.n_dense_first, n_layers - 1)
    return {"moe": replace(moe, n_dense_first=first, every=min(moe.every, n_layers - first))}


def _usual_heads(hidden: int, tp: int) -> int:
    """Heads of 128 columns, or the nearest number that `tp` divides and that divides `hidden`: what ran was possible."""
    usual = max(1, hidden // 128)
    if usual % tp == 0:
        return usual
    possible = (n for n in divisors(hidden) if n % tp == 0)
    return min(possible, key=lambda n: abs(n - usual), default=usual)


def _from_sizes(record: StepRecord, n_layers: int, hidden: int) -> TransformerSpec:
    """Gated or plain as the row says, else as its number of parameters says, else as its family is."""
    if record.gated is not None:
        return _in_style(record, n_layers, hidden, record.gated)
    by_name = bool(GATED.search(record.model_name))
    usual, other = (_in_style(record, n_layers, hidden, gated) for gated in (by_name, not by_name))
    if not record.params_b or record.params_b <= 0.0:
        return usual
    off, off_other = (abs(log(spec.n_params() / (1e9 * record.params_b))) for spec in (usual, other))
    return other if off_other < min(off, AS_STATED) else usual


def _in_style(record: StepRecord, n_layers: int, hidden: int, gated: bool) -> TransformerSpec:
    rotary = gated or "nemotron" in record.model_name.lower()
    n_heads = record.n_heads or _usual_heads(hidden, record.tp or 1)
    ffn = record.ffn or 4 * hidden
    moe = None
    if record.n_experts:
        moe = MoESpec(record.n_experts, record.top_k or 2, ffn)
    return TransformerSpec(
        name=record.model_name or record.id,
        n_layers=n_layers,
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=record.n_kv_heads or n_heads,
        head_dim=0 if hidden % n_heads == 0 else 128,
        ffn_hidden=ffn,
        vocab=record.vocab or _DEFAULT_VOCAB[gated],
        max_seq_len=max(2048, record.seq_len or 0),
        gated=gated,
        norm="rms" if gated else "layer",
        position="rope" if rotary else "learned",
        tied_embeddings=not rotary or "nanotron" in record.model_name.lower(),
        bias=not rotary,
        moe=moe,
        source=record.source,
    )


# Which adapters a row of a steps table trains: from its own columns and notes, else as its source's recipe has them.
#
# Recipes: MLPerf's Llama-2-70B benchmark has rank 16 and dropout 0.1 on the fused query, key, value projection and on
# the output projection (44.5 M parameters); NVIDIA's performance recipes (NeMo, Megatron-Bridge) have rank 16 on the
# first of the two alone (`peft.target_modules = ['linear_qkv']`); torchtune's configs have rank 8 on attention and
# MLP; fms-acceleration's scenarios have dropout 0.1 on the four projections of the attention, as MindFormers' configs
# have without dropout.

_KINDS = ("lora", "qlora")
_NAME = re.compile(r"\bq?lora\b|_lora\b|\bpeft\b", re.IGNORECASE)
_NOTE = re.compile(r"\blora fine-?tun", re.IGNORECASE)
_RANK = re.compile(r"\b(?:r|rank)[ =]{1,9}(\d{1,9})\b", re.IGNORECASE)
_FOUR_BITS = (
    ("int4", re.compile(r"\bGPTQ\b", re.IGNORECASE)),
    ("nf4", re.compile(r"\bqlora\b|\bnf4\b", re.IGNORECASE)),
)
_USUAL = AdapterSpec(16)
_TARGETS = (  # words of a column of its own
    (re.compile(r"all-linear|\ball\b|c_attn.*w1|mlp.*attention|attention.*mlp|gate_proj"), ("all",)),
    (re.compile(r"qkv.*(output|proj)"), ("linear_qkv", "linear_proj")),
    (re.compile(r"qkv"), ("linear_qkv",)),
    (re.compile(r"attention|[qv]_proj"), ("attention",)),
    (re.compile(r"mlp"), ("mlp",)),
)
_ADAPTER_RECIPES = (
    (re.compile("mlcommons"), AdapterSpec(16, ("linear_qkv", "linear_proj"), dropout=0.1)),
    (re.compile("NVIDIA"), AdapterSpec(16, ("linear_qkv",))),
    (re.compile("torchtune"), AdapterSpec(8, ("all",))),
    (re.compile("fms-acceleration"), AdapterSpec(16, ("attention",), dropout=0.1)),
)


def adapters_of_record(record: StepRecord) -> AdapterSpec | None:
    """Adapters of a row that trains low-rank adapters alone; None for one that trains all parameters."""
    if not _trains_adapters(record):
        return None
    recipe = next((spec for source, spec in _ADAPTER_RECIPES if source.search(record.source)), _USUAL)
    rank = _RANK.search(record.notes)
    return replace(
        recipe,
        rank=record.lora_rank or (int(rank[1]) if rank else recipe.rank),
        targets=next((named for words, named in _TARGETS if words.search(record.lora_targets)), recipe.targets),
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


# Sequences that a row of a steps table packs of many short documents, whose tokens attend to their own document
# alone.
#
# NVIDIA's fine-tuning recipes (NeMo `finetune_recipe(packed_sequence=True)`, Megatron-Bridge `PackedSequenceSpecs`)
# pack SQuAD, whose documents (a passage of 120 words, a question and an answer; arXiv 1606.05250) have 150 to 250
# tokens, and give attention kernels the bounds of every one of them: scores between documents are never computed.

_PACKING_RECIPES = ((re.compile("NVIDIA"), 256),)  # source, tokens of a document
_FINE_TUNING = re.compile(r"\btask (?:sft|lora)\b|\bfine-?tun", re.IGNORECASE)


def documents_of_record(record: StepRecord) -> WindowSpec | None:
    """What every token attends to where the recipe packs documents; None where it attends to the whole sequence."""
    if not _FINE_TUNING.search(record.notes):
        return None
    size = next((size for source, size in _PACKING_RECIPES if source.search(record.source)), 0)
    return WindowSpec(size, ("chunked",)) if size and size < (record.seq_len or 0) else None


# The model of a row of a steps table as the row trains it: with its adapters, on sequences packed as its recipe has
# it.


_CAPACITY = re.compile(r"\bcapacity(?: factor)?[ =](\d{1,3}(?:\.\d{1,3})?)\b", re.IGNORECASE)


def _with_capacity(model: TransformerSpec, record: StepRecord) -> TransformerSpec:
    """With the share of tokens that its experts take, where notes say that the others are dropped."""
    found = _CAPACITY.search(record.notes)
    if model.moe is None or not found:
        return model
    return replace(model, moe=replace(model.moe, capacity_factor=min(float(found[1]), float(model.moe.n_experts))))


def trained_model(record: StepRecord) -> TransformerSpec:
    """Its architecture with what is trained of it, and what its tokens attend to.

    Raises:
        UnsupportedRowError: sizes that nobody published.
    """
    model = _with_capacity(model_of_record(record), record)
    window = documents_of_record(record) if model.window is None else model.window
    return replace(model, adapters=adapters_of_record(record), window=window)
