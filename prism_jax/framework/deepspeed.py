"""DeepSpeed ZeRO on models that are not Megatron's.

It sums weight gradients inside the product or in a pass of its own, by precision and version: nothing is said of it.
"""

from __future__ import annotations

from .base import EAGER, Framework
from .capabilities import Capabilities
from .recognition import by_name, in_notes

DEEPSPEED = Framework(
    "deepspeed",
    "DeepSpeed ZeRO without Megatron",
    EAGER,
    capabilities=Capabilities(
        schedules=(),
        sharding=("none",),
        recompute=("none", "full"),
        max_tp=1,
        source="DeepSpeed, docs/_pages/training.md",
    ),
    patterns=(in_notes(r"(?<!megatron \+ )deepspeed zero", 70), *by_name(r"deepspeed|bloomberggpt", 75)),
)
