"""Convolutional networks that a job file may name: every shipped architecture under its own name."""

from __future__ import annotations

from .architectures import SHIPPED
from .spec import CnnSpec

CNN_PRESETS = tuple(CnnSpec(one.name, one.name, source=one.source) for one in SHIPPED)
