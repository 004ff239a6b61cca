"""Convolutional networks by name; a new one is one file with an `Architecture`, and a line here, or `ARCHITECTURES.add(...)`."""

from __future__ import annotations

from ...._core.registry import Registry
from .base import Architecture as Architecture
from .convnext import CONVNEXTS
from .densenet import DENSENETS
from .inception import INCEPTIONS
from .inverted import INVERTED
from .resnet import RESNETS
from .small import SMALL
from .totals import CM_DARE
from .vgg import VGGS

SHIPPED = (*RESNETS, *VGGS, *DENSENETS, *INVERTED, *INCEPTIONS, *SMALL, *CONVNEXTS, *CM_DARE)
ARCHITECTURES: Registry[Architecture] = Registry("convolutional network", lambda: SHIPPED)
