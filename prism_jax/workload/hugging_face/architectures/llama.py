"""Llama, and what shares its layers: Mistral (sliding windows), Mixtral (experts), Phi-3 and Phi-4."""

from __future__ import annotations

from typing import Any

from ...transformer.spec import MoESpec
from ...transformer.window import SLIDING
from ..architecture import Architecture
from ..fields import Fields
from ..windows import window


def llama_sizes(f: Fields) -> dict[str, Any]:
    """Fields that Llama and everything derived from it share."""
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": f.count("hidden_size"),
        "n_heads": f.count("num_attention_heads"),
        "n_kv_heads": f.count("num_key_value_heads", default=0),
        "head_dim": f.count("head_dim", default=0),
        "ffn_hidden": f.count("intermediate_size"),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=2048),
        "gated": True,
        "norm": "rms",
        "position": "rope",
        "tied_embeddings": f.flag("tie_word_embeddings", default=False),
        "bias": False,
    }


def _llama(f: Fields) -> dict[str, Any]:
    attention_bias = f.flag("attention_bias", default=False)
    return llama_sizes(f) | {"bias": attention_bias, "mlp_bias": f.flag("mlp_bias", default=False)}


def _mistral(f: Fields) -> dict[str, Any]:
    return llama_sizes(f) | {"window": window(f, (SLIDING,))}


def _mixtral(f: Fields) -> dict[str, Any]:
    moe = MoESpec(f.count("num_local_experts"), f.count("num_experts_per_tok"), f.count("intermediate_size"))
    return _mistral(f) | {"moe": moe}


ARCHITECTURES = (
    Architecture("llama", _llama),
    Architecture("mistral", _mistral),
    Architecture("mixtral", _mixtral),
    Architecture("phi3", _mistral),
)
