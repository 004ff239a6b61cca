"""GPT-2."""

from __future__ import annotations

from typing import Any

from ..architecture import Architecture
from ..fields import Fields


def _gpt2(f: Fields) -> dict[str, Any]:
    hidden = f.count("n_embd")
    return {
        "n_layers": f.count("n_layer"),
        "hidden": hidden,
        "n_heads": f.count("n_head"),
        "ffn_hidden": f.count("n_inner", default=0) or 4 * hidden,
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("n_positions", default=1024),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


ARCHITECTURES = (Architecture("gpt2", _gpt2),)
