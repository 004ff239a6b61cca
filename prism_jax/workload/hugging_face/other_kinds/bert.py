"""BERT and RoBERTa; the head predicts masked tokens, whose share a configuration does not say."""

from __future__ import annotations

from typing import Any

from ...encoder.spec import EncoderSpec
from ..architecture import Architecture
from ..fields import Fields


def _bert(f: Fields) -> dict[str, Any]:
    f.require("is_decoder", only=False, default=False)
    f.require("add_cross_attention", only=False, default=False)
    f.require("position_embedding_type", only="absolute", default="absolute")
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": f.count("hidden_size"),
        "n_heads": f.count("num_attention_heads"),
        "ffn_hidden": f.count("intermediate_size"),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=512),
        "n_token_types": f.count("type_vocab_size", default=2),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


def _roberta(f: Fields) -> dict[str, Any]:
    return _bert(f) | {"next_sentence": False}


ARCHITECTURES = (
    Architecture("bert", _bert, EncoderSpec),
    Architecture("roberta", _roberta, EncoderSpec),
    Architecture("xlm-roberta", _roberta, EncoderSpec),
)
