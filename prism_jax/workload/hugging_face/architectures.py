"""Every `model_type` that can be read: decoders like Llama (`llama_like`), and those here, each with keys of its own.

Decoders: GPT-2, GPT-NeoX and Pythia, MPT, OPT. Encoders: BERT and RoBERTa; the head predicts masked tokens, whose share a
configuration does not say. Encoder-decoders: T5, T5 1.1 and mT5; how much the decoder writes is that of span corruption, which a
configuration does not say. Classifiers of images: ViT and DeiT; 1,000 classes where a configuration names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.registry import Registry
from ..transformer.encoder import EncoderSpec
from ..transformer.encoder_decoder import EncoderDecoderSpec
from ..transformer.vit import VitSpec
from .fields import Architecture, Fields
from .llama_like import LLAMA_LIKE


def _layers(f: Fields, **more: str) -> dict[str, int]:
    """Layers and widths by their usual keys, and counts by others."""
    usual = {"n_layers": "num_hidden_layers", "hidden": "hidden_size", "n_heads": "num_attention_heads"}
    return f.counts(**usual, ffn_hidden="intermediate_size", **more)


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


def _gpt_neox(f: Fields) -> dict[str, Any]:
    attention_bias = f.flag("attention_bias", default=True)
    return {
        **_layers(f, vocab="vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=2048),
        "position": "rope",
        "tied_embeddings": f.flag("tie_word_embeddings", default=False),
        "bias": attention_bias,
        "mlp_bias": True,
    }


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


def _bert(f: Fields) -> dict[str, Any]:
    f.require("is_decoder", only=False, default=False)
    f.require("add_cross_attention", only=False, default=False)
    f.require("position_embedding_type", only="absolute", default="absolute")
    return {
        **_layers(f, vocab="vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=512),
        "n_token_types": f.count("type_vocab_size", default=2),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


def _roberta(f: Fields) -> dict[str, Any]:
    return _bert(f) | {"next_sentence": False}


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


_IMAGENET_CLASSES = 1000


def _vit(f: Fields) -> dict[str, Any]:
    f.require("qkv_bias", only=True, default=True)
    labels = f.get("id2label", default={})
    return {
        **_layers(f),
        "image_size": f.count("image_size", default=224),
        "patch": f.count("patch_size", default=16),
        "n_channels": f.count("num_channels", default=3),
        "n_classes": len(labels) if isinstance(labels, dict) and labels else _IMAGENET_CLASSES,
    }


_SHIPPED = (
    *(Architecture(name, read) for name, read in LLAMA_LIKE.items()),
    Architecture("gpt2", _gpt2),
    Architecture("gpt_neox", _gpt_neox),
    Architecture("mpt", _mpt),
    Architecture("opt", _opt),
    Architecture("bert", _bert, EncoderSpec),
    Architecture("roberta", _roberta, EncoderSpec),
    Architecture("xlm-roberta", _roberta, EncoderSpec),
    Architecture("t5", _t5, EncoderDecoderSpec),
    Architecture("mt5", _t5, EncoderDecoderSpec),
    Architecture("vit", _vit, VitSpec),
)
ARCHITECTURES: Registry[Architecture] = Registry("model_type", lambda: _SHIPPED)
