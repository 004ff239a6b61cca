"""Convolutional networks by name; a new one is one file with an `Architecture`, and a line here, or `ARCHITECTURES.add(...)`."""

from __future__ import annotations

from ...._core.registry import Registry
from .base import Architecture as Architecture
from .resnet import RESNETS
from .vgg import VGGS

SHIPPED = (*RESNETS, *VGGS)
ARCHITECTURES: Registry[Architecture] = Registry("convolutional network", lambda: SHIPPED)
