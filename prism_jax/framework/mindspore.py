"""MindSpore with MindFormers: the step is compiled into one graph."""

from __future__ import annotations

from .base import FUSED, Framework
from .recognition import by_name

MINDSPORE = Framework(
    "mindspore", "MindSpore and MindFormers, in graph mode", FUSED, patterns=by_name(r"mindspore|mindformers", 30)
)
