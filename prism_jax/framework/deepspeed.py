"""DeepSpeed ZeRO on models that are not Megatron's.

It sums weight gradients inside the product or in a pass of its own, by precision and version: nothing is said of it.
"""

from __future__ import annotations

from .base import EAGER, Framework
from .recognition import by_name, in_notes

DEEPSPEED = Framework(
    "deepspeed",
    "DeepSpeed ZeRO without Megatron",
    EAGER,
    patterns=(in_notes(r"(?<!megatron \+ )deepspeed zero", 70), *by_name(r"deepspeed|bloomberggpt", 75)),
)
