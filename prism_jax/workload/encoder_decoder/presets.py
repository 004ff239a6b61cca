"""Encoder-decoders by name, and what the fields are that only they have."""

from __future__ import annotations

from dataclasses import replace

from .spec import EncoderDecoderSpec

WORDS = {
    "n_layers": "layers of the encoder",
    "n_decoder_layers": "layers of the decoder; 0: as many as the encoder",
    "decoder_seq_len": "tokens that the decoder writes per sample; 0: as many as are read",
    "position": "positions; relative: a bias per head and bucket of distances",
    "n_buckets": "buckets of relative positions",
    "dropout": "masks of dropout are kept",
}
_T5 = "arXiv 1910.10683 table 5 and config.json of google-t5; span corruption: 512 tokens read, 114 written"
_V1_1 = "arXiv 2010.11934 and config.json of google/t5-v1_1 and google/mt5"
_WRITTEN = 114

_t5_base = EncoderDecoderSpec("t5-base", 12, 768, 12, 3072, 32128, decoder_seq_len=_WRITTEN, head_dim=64, source=_T5)
_t5_large = replace(_t5_base, name="t5-large", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096)
_v1_1_base = replace(_t5_base, name="t5-v1.1-base", ffn_hidden=2048, gated=True, tied_embeddings=False, source=_V1_1)
_v1_1_large = replace(_v1_1_base, name="t5-v1.1-large", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=2816)
_v1_1_xl = replace(_v1_1_large, name="t5-v1.1-xl", hidden=2048, n_heads=32, ffn_hidden=5120)
_v1_1_xxl = replace(_v1_1_large, name="t5-v1.1-xxl", hidden=4096, n_heads=64, ffn_hidden=10240)
_MT5_VOCAB = 250112

PRESETS = (
    replace(_t5_base, name="t5-small", n_layers=6, hidden=512, n_heads=8, ffn_hidden=2048),
    _t5_base,
    _t5_large,
    replace(_t5_large, name="t5-3b", n_heads=32, head_dim=128, ffn_hidden=16384),
    replace(_t5_large, name="t5-11b", n_heads=128, head_dim=128, ffn_hidden=65536),
    _v1_1_base,
    _v1_1_large,
    _v1_1_xl,
    _v1_1_xxl,
    replace(_v1_1_base, name="mt5-small", n_layers=8, hidden=512, n_heads=6, ffn_hidden=1024, vocab=_MT5_VOCAB),
    replace(_v1_1_base, name="mt5-base", vocab=_MT5_VOCAB),
    replace(_v1_1_large, name="mt5-large", vocab=_MT5_VOCAB),
    replace(_v1_1_xl, name="mt5-xl", vocab=_MT5_VOCAB),
    replace(_v1_1_xxl, name="mt5-xxl", vocab=_MT5_VOCAB),
)
