"""JAX code: compiled by XLA, one program for all devices."""

from __future__ import annotations

from .base import FUSED, Framework, PlanDefaults
from .recognition import NOTHING_ELSE, SourcePattern, by_name, in_notes

JAX = Framework(
    "jax",
    "MaxText, PaxML, T5X and other JAX code",
    FUSED,
    plan_defaults=PlanDefaults(grouped_queries=True),  # MaxText's `qk_product` is an einsum over groups
    patterns=(
        in_notes(r"maxtext|paxml|\bjax\b", 10),
        *by_name(r"maxtext|tpu-recipes|\bpax(ml)?\b|palm\b|\bt5x\b|alpa\b|levanter|easylm", 20),
        SourcePattern(gpu=r"\btpu", rank=NOTHING_ELSE),  # a TPU without other words runs JAX
    ),
)
