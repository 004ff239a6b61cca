"""MPT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..architecture import Architecture
from ..fields import Fields


def _mpt(f: Fields) -> dict[str, Any]:
    hidden, n_heads = f.count("d_model"), f.count("n_heads")
    attention = f.get("attn_config", default={})
    if not isinstance(attention, Mapping):
        f.fail("attn_config", attention, "it must be an object")
    attention = Fields(f.kind, attention, prefix="attn_config.")
    attention.require("qk_ln", False, default=False)
    attention.require("sliding_window_size", -1, default=-1)
    kind = attention.get("attn_type", default="multihead_attention")
    default_kv = {"multihead_attention": n_heads, "multiquery_attention": 1}.get(str(kind), 0)
    return {
        "n_layers": f.count("n_layers"),
        "hidden": hidden,
        "n_heads": n_heads,
        "n_kv_heads": attention.count("kv_n_heads", default=0) or default_kv,
        "ffn_hidden": int(f.number("expansion_ratio", default=4) * hidden),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_seq_len", default=2048),
        "position": _mpt_position(f, attention),
        "norm": "layer_no_bias" if f.flag("no_bias", default=True) else "layer",
        "bias": not f.flag("no_bias", default=True),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


def _mpt_position(f: Fields, attention: Fields) -> str:
    if attention.flag("alibi", default=False):
        return "alibi"
    if attention.flag("rope", default=False):
        return "rope"
    return "learned" if f.flag("learned_pos_emb", default=True) else "none"


ARCHITECTURES = (Architecture("mpt", _mpt),)
