"""PaddleNLP."""

from __future__ import annotations

from .base import FUSED, Framework
from .capabilities import Capabilities
from .recognition import by_name, in_notes

PADDLE = Framework(
    "paddle",
    "PaddleNLP",
    FUSED,
    capabilities=Capabilities(
        schedules=("1f1b", "interleaved"),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "selective", "full"),
        source="PaddleNLP, docs/trainer.md",
    ),
    patterns=(in_notes(r"paddlenlp", 30), *by_name(r"paddle", 60)),
)
