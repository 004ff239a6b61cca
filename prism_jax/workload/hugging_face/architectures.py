"""Model types that are no decoders, each with keys of its own; decoders are read by their keys (`decoder`).

Encoders: BERT and RoBERTa; the head predicts masked tokens, whose share a
configuration does not say. Encoder-decoders: T5, T5 1.1 and mT5; how much the decoder writes is that of span corruption, which a
configuration does not say. Classifiers of images: ViT and DeiT; 1,000 classes where a configuration names none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...core.registry import Registry
from ..transformer.encoder import EncoderSpec
from ..transformer.encoder_decoder import EncoderDecoderSpec
from ..transformer.spec import TransformerSpec
from ..transformer.vit import VitSpec
from .fields import Fields

Reader = Callable[[Fields], dict[str, Any]]


class Architecture(NamedTuple):
    """One `model_type` that has a reader of its own.

    Attributes:
        name: the `model_type`.
        read: keys of a configuration -> fields of its `spec`.
        spec: kind of model that it describes: a decoder, or another.
    """

    name: str
    read: Reader
    spec: type = TransformerSpec


def _layers(f: Fields, **more: str) -> dict[str, int]:
    """Layers and widths by their usual keys, and counts by others."""
    usual = {"n_layers": "num_hidden_layers", "hidden": "hidden_size", "n_heads": "num_attention_heads"}
    return f.counts(**usual, ffn_hidden="intermediate_size", **more)


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
    Architecture("bert", _bert, EncoderSpec),
    Architecture("roberta", _roberta, EncoderSpec),
    Architecture("xlm-roberta", _roberta, EncoderSpec),
    Architecture("t5", _t5, EncoderDecoderSpec),
    Architecture("mt5", _t5, EncoderDecoderSpec),
    Architecture("vit", _vit, VitSpec),
)
ARCHITECTURES: Registry[Architecture] = Registry("model_type", lambda: _SHIPPED)
