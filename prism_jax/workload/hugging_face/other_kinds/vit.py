"""ViT and DeiT as classifiers; classes are those that the configuration names, 1,000 where it names none."""

from __future__ import annotations

from typing import Any

from ...vision.vit import VitSpec
from ..architecture import Architecture
from ..fields import Fields

_IMAGENET_CLASSES = 1000


def _vit(f: Fields) -> dict[str, Any]:
    f.require("qkv_bias", only=True, default=True)
    labels = f.get("id2label", default={})
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": f.count("hidden_size"),
        "n_heads": f.count("num_attention_heads"),
        "ffn_hidden": f.count("intermediate_size"),
        "image_size": f.count("image_size", default=224),
        "patch": f.count("patch_size", default=16),
        "n_channels": f.count("num_channels", default=3),
        "n_classes": len(labels) if isinstance(labels, dict) and labels else _IMAGENET_CLASSES,
    }


ARCHITECTURES = (Architecture("vit", _vit, VitSpec),)
