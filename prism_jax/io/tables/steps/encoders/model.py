"""From a row of a steps table to an encoder or an encoder-decoder: the row's sizes in its family's style, else a preset."""

from __future__ import annotations

import re

from .....errors import SpecError
from .....workload.catalog import workload
from .....workload.encoder.spec import EncoderSpec
from .....workload.encoder_decoder.spec import EncoderDecoderSpec
from ..kind import UnsupportedRowError
from ..record import StepRecord

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
