"""Colossal-AI."""

from __future__ import annotations

from .base import EAGER, Framework
from .capabilities import Capabilities
from .recognition import by_name

COLOSSALAI = Framework(
    "colossalai",
    "Colossal-AI",
    EAGER,
    capabilities=Capabilities(
        schedules=("1f1b", "interleaved", "zb_v"),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "full"),
        source="Colossal-AI, booster/plugin/hybrid_parallel_plugin.py",
    ),
    patterns=by_name(r"colossal-?ai", 40),
)
