"""Encoders by name, and what the fields are that only encoders have."""

from __future__ import annotations

from dataclasses import replace

from .spec import EncoderSpec

_BERT = "arXiv 1810.04805; counts of google-bert checkpoints with both heads (Hugging Face safetensors metadata)"
_ROBERTA = "arXiv 1907.11692; config.json of FacebookAI"
# Half of the tokens of Wikipedia in sequences of 512 are padding (arXiv 2107.02027, figure 1: packing is 2.001 times as fast).
_PADDING = 0.5

_base = EncoderSpec("bert-base", 12, 768, 12, 3072, 30522, source=_BERT)
_large = EncoderSpec("bert-large", 24, 1024, 16, 4096, 30522, source=_BERT)
_roberta_base = EncoderSpec(
    "roberta-base",
    12,
    768,
    12,
    3072,
    50265,
    max_seq_len=514,
    n_token_types=1,
    next_sentence=False,
    source=_ROBERTA,
)

WORDS = {
    "n_token_types": "types of tokens with an embedding (first and second sentence)",
    "predicted": "share of the tokens that the loss is computed on; 1: logits of all tokens, as in Megatron-LM",
    "next_sentence": "a second loss, on a pooled first token",
    "padding_removed": "share of the tokens that is padding and that the layers never see; 0: padding is computed",
}
PRESETS = (
    _base,
    _large,
    replace(
        _large,
        name="bert-large-mlperf",
        padding_removed=_PADDING,
        source="MLPerf Training, BERT: 76 of 512 tokens are predicted; padding removed, its share as in arXiv 2107.02027",
    ),
    _roberta_base,
    replace(_roberta_base, name="roberta-large", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096),
)
