"""Convolutional networks that a job file may name, every shipped architecture under its own name, and what their fields are."""

from __future__ import annotations

from .architectures import SHIPPED
from .spec import CnnSpec

PRESETS = tuple(CnnSpec(one.name, one.name, source=one.source) for one in SHIPPED)
WORDS = {
    "architecture": "network: one of the convolutional networks of `prism-jax show models`",
    "image_size": "rows and columns of an image; 0: as the network is usually trained",
    "n_classes": "classes of the classifier; 0: the same",
    "channels_last": "order of tensors in memory (NHWC), which 16-bit products want; else they are moved around each product",
}
