"""From a row of a table of published steps to an encoder or an encoder-decoder.

The row's sizes in its family's style, else a preset; what a row leaves blank is what the recipe of its source states.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

from experiments.step_tables.records import Assumption, StepRecord, UnsupportedRowError
from prism_jax.core.errors import SpecError
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.encoder import EncoderSpec
from prism_jax.workload.transformer.encoder_decoder import EncoderDecoderSpec

EncoderLike = EncoderSpec | EncoderDecoderSpec

_NAME = re.compile(r"\b(bert|roberta|m?t5)\b", re.IGNORECASE)
_OTHER_RELATIVES = re.compile(r"distil|deberta|albert|flan|umt5|ul2|mlperf", re.IGNORECASE)
_BERT_VOCAB, _T5_VOCAB, _MT5_VOCAB = 30522, 32128, 250112
_WRITTEN = 128  # `seq_length_dec` of Megatron-LM and NeMo
_ALL_LOGITS = re.compile(r"megatron|nemo|nvidia|libai", re.IGNORECASE)


def trains_encoder(record: StepRecord) -> bool:
    """Whether the row's name is that of an encoder or an encoder-decoder that is known."""
    return bool(_NAME.search(record.model_name)) and not _OTHER_RELATIVES.search(record.model_name)


def encoder_of_record(record: StepRecord) -> EncoderLike:
    """The architecture of a row.

    Notes:
        Megatron-LM and what is built on it compute logits of all tokens, pad vocabularies to multiples of 128, and have learned
        positions in encoder-decoders, too.

    Raises:
        UnsupportedRowError: sizes that nobody published.
    """
    if record.n_layers is None or record.hidden is None:
        return _preset(record)
    is_decoder = bool(re.search(r"t5", record.model_name, re.IGNORECASE))
    return _encoder_decoder(record) if is_decoder else _encoder(record)


def _preset(record: StepRecord) -> EncoderLike:
    try:
        found = workload(record.model_name.strip().lower())
    except SpecError:
        raise UnsupportedRowError("architecture not published") from None
    if not isinstance(found, EncoderLike):
        raise UnsupportedRowError("architecture not published")
    return found


def _encoder(record: StepRecord) -> EncoderSpec:
    assert record.n_layers is not None
    assert record.hidden is not None
    return EncoderSpec(
        record.model_name,
        record.n_layers,
        record.hidden,
        record.n_heads or max(1, record.hidden // 64),
        record.ffn or 4 * record.hidden,
        record.vocab or _BERT_VOCAB,
        max_seq_len=record.seq_len or 512,
        predicted=1.0 if _ALL_LOGITS.search(record.source) else 0.15,
        next_sentence="NeMo" not in record.source,  # `bert_binary_head: False` in its recipes
        source=record.source,
    )


def _encoder_decoder(record: StepRecord) -> EncoderDecoderSpec:
    assert record.n_layers is not None
    assert record.hidden is not None
    is_megatron = bool(_ALL_LOGITS.search(record.source))
    is_multilingual = record.model_name.lower().startswith("mt5")
    return EncoderDecoderSpec(
        record.model_name,
        record.n_layers,
        record.hidden,
        record.n_heads or max(1, record.hidden // 64),
        record.ffn or 4 * record.hidden,
        record.vocab or (_MT5_VOCAB if is_multilingual else _T5_VOCAB),
        decoder_seq_len=_WRITTEN,
        head_dim=64,
        max_seq_len=record.seq_len or 512,
        gated=bool(record.gated),
        norm="layer" if is_megatron else "rms",
        position="learned" if is_megatron else "relative",
        bias=is_megatron,
        source=record.source,
    )


# What a row about an encoder leaves blank and the recipe of its source states.
#
# Source: configuration files of NVIDIA/NeMo-Framework-Launcher (launcher_scripts/conf/training/bert, t5, mt5), which
# the tables of throughput of the same repository refer to by size. T5-3B: the batch is that of these tables. LiBai's
# page of benchmarks names no GPU; the micro-batches that it runs without recomputation (24 sequences of BERT, 6 of
# GPT-2) fill 32 GB by the closed form of saved activations (arXiv 2205.05198), and rates of 20,000 tokens/s are 40%
# of the peak of a V100.


class Recipe(NamedTuple):
    """What a source uses for one model.

    Attributes:
        source: pattern of the source's name.
        model: pattern of the model's name, from its beginning.
        values: fields of a `StepRecord`.
        why: on what ground.
    """

    source: str
    model: str
    values: dict[str, Any]
    why: str = "recipe of that model in the source"


def _bert(size: str, layers: int, hidden: int, heads: int, **plan: Any) -> Recipe:
    sizes = {"n_layers": layers, "hidden": hidden, "ffn": 4 * hidden, "n_heads": heads, "vocab": 30592}
    own = {"tp": 1, "pp": 1, "sequence_parallel": False, "recompute": "selective"} | plan
    return Recipe(_NEMO, rf"bert-{size}$", sizes | own | _BY_HAND)


def _t5(name: str, layers: int, hidden: int, ffn: int, heads: int, **plan: Any) -> Recipe:
    sizes = {"n_layers": layers, "hidden": hidden, "ffn": ffn, "n_heads": heads, "gated": True}
    vocab = 250112 if name.startswith("mt5") else 29184
    own = {"tp": 1, "pp": 1, "sequence_parallel": False, "recompute": "none"} | plan
    return Recipe(_NEMO, rf"{name}$", sizes | {"vocab": vocab} | own | _BY_HAND)


_NEMO = r"NeMo-Framework-Launcher"
_BY_HAND = {"attention_kernel": "fused softmax", "vpp": 1}  # `masked_softmax_fusion`; no interleaving
RECIPES = (
    _bert("110m", 12, 768, 12, micro_batch=4, global_batch=256),
    _bert("4b", 48, 2560, 32, micro_batch=8, global_batch=2048),
    _bert("20b", 48, 6144, 96, micro_batch=4, global_batch=4096, tp=4, pp=4, sequence_parallel=True),
    _bert("100b", 96, 9216, 96, micro_batch=8, global_batch=4096, tp=4, pp=16, sequence_parallel=True),
    _t5("t5-220m", 12, 768, 2048, 12, micro_batch=64, global_batch=2048),
    _t5("t5-3b", 24, 2048, 5120, 32, micro_batch=27, global_batch=2160, tp=2),
    _t5("mt5-170m", 8, 512, 1024, 6, micro_batch=64, global_batch=2048),
    _t5("mt5-390m", 12, 768, 2048, 12, micro_batch=32, global_batch=2048),
    _t5("mt5-3b", 24, 2048, 5120, 32, micro_batch=24, global_batch=1920, tp=2),
    Recipe(r"libai", "bert|gpt", {"gpu": "V100-32GB"}, "the stated micro-batches fill its memory"),
)


def with_recipe(record: StepRecord) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with what the recipe of its source says where it is blank: one assumption, however many fields it fills."""
    assumed: tuple[Assumption, ...] = ()
    for source, model, values, why in RECIPES:
        if not (re.search(source, record.source, re.IGNORECASE) and re.match(model, record.model_name, re.IGNORECASE)):
            continue
        blank = {name: value for name, value in values.items() if _is_blank(getattr(record, name))}
        if blank:
            record = replace(record, **blank)
            assumed += (Assumption("recipe", ", ".join(f"{name} {value}" for name, value in blank.items()), why),)
    return record, assumed


def with_gradients_behind(record: StepRecord, plan: ParallelPlan) -> ParallelPlan:
    """The plan with gradients reduced behind the backward pass, as the recipes say (`overlap_grad_sync: False`)."""
    if not re.search(_NEMO, record.source):
        return plan
    return replace(plan, overlap=replace(plan.overlap, dp=False))


def _is_blank(value: Any) -> bool:
    return value is None or value in ("", "unknown")
