"""GPT-NeoX and Pythia."""

from __future__ import annotations

from typing import Any

from ..architecture import Architecture
from ..fields import Fields


def _gpt_neox(f: Fields) -> dict[str, Any]:
    attention_bias = f.flag("attention_bias", default=True)
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": f.count("hidden_size"),
        "n_heads": f.count("num_attention_heads"),
        "ffn_hidden": f.count("intermediate_size"),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=2048),
        "position": "rope",
        "tied_embeddings": f.flag("tie_word_embeddings", default=False),
        "bias": attention_bias,
        "mlp_bias": True,
    }


ARCHITECTURES = (Architecture("gpt_neox", _gpt_neox),)
