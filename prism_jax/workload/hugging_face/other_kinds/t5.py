"""T5, T5 1.1 and mT5; how much the decoder writes is that of span corruption, which a configuration does not say."""

from __future__ import annotations

from typing import Any

from ...encoder_decoder.spec import EncoderDecoderSpec
from ..architecture import Architecture
from ..fields import Fields

_WRITTEN = 114  # of 512 tokens that are read, arXiv 1910.10683 section 3.1.4


def _t5(f: Fields) -> dict[str, Any]:
    f.require("is_encoder_decoder", only=True, default=True)
    n_layers = f.count("num_layers")
    n_decoder = f.count("num_decoder_layers", default=n_layers)
    return {
        "n_layers": n_layers,
        "n_decoder_layers": 0 if n_decoder == n_layers else n_decoder,
        "decoder_seq_len": _WRITTEN,
        "hidden": f.count("d_model"),
        "n_heads": f.count("num_heads"),
        "head_dim": f.count("d_kv"),
        "ffn_hidden": f.count("d_ff"),
        "vocab": f.count("vocab_size"),
        "n_buckets": f.count("relative_attention_num_buckets", default=32),
        "gated": str(f.get("feed_forward_proj", default="relu")).startswith("gated"),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


ARCHITECTURES = (Architecture("t5", _t5, EncoderDecoderSpec), Architecture("mt5", _t5, EncoderDecoderSpec))
