"""Gemma 2 and 3: four norms in a layer, sliding windows in all layers but every second (Gemma 2) or sixth (Gemma 3).

Source: arXiv 2408.00118 table 1; arXiv 2503.19786 section 2. Configurations leave out what transformers has as a default.
"""

from __future__ import annotations

from typing import Any

from ..architecture import Architecture
from ..fields import Fields
from ..windows import full_every, window
from .llama import llama_sizes

_NORMS = {"n_norms": 4}


def _gemma2(f: Fields) -> dict[str, Any]:
    size = f.count("sliding_window_size", default=4096)
    return _gemma(f, heads=(8, 4), vocab=256000, max_seq_len=8192) | {"window": window(f, full_every(2), size=size)}


def _gemma3(f: Fields) -> dict[str, Any]:
    every = f.count("_sliding_window_pattern", default=f.count("sliding_window_pattern", default=6))
    sizes = _gemma(f, heads=(8, 4), vocab=262208, max_seq_len=131072)
    return sizes | {"qk_norm": True, "window": window(f, full_every(every), size=4096)}


def _gemma(f: Fields, heads: tuple[int, int], vocab: int, max_seq_len: int) -> dict[str, Any]:
    n_heads, n_kv_heads = heads
    defaults = {
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": 256,
        "vocab_size": vocab,
        "max_position_embeddings": max_seq_len,
        "tie_word_embeddings": True,
    }
    stated = {key: value for key, value in f.config.items() if value is not None}
    filled = Fields(f.kind, defaults | stated, f.prefix, f.read)
    return llama_sizes(filled) | _NORMS | {"bias": f.flag("attention_bias", default=False), "mlp_bias": False}


ARCHITECTURES = (Architecture("gemma2", _gemma2), Architecture("gemma3_text", _gemma3))
