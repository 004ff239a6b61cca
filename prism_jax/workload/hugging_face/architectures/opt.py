"""OPT."""

from __future__ import annotations

from typing import Any

from ..architecture import Architecture
from ..fields import Fields


def _opt(f: Fields) -> dict[str, Any]:
    hidden = f.count("hidden_size")
    f.require("word_embed_proj_dim", hidden, default=hidden)
    bias = f.flag("enable_bias", default=True)
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": hidden,
        "n_heads": f.count("num_attention_heads"),
        "ffn_hidden": f.count("ffn_dim"),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=2048) + 2,  # OPT's table starts at position 2
        "bias": bias,
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


ARCHITECTURES = (Architecture("opt", _opt),)
