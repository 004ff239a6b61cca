"""What a plan does for its memory without effect, in sentences for a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..framework.memory_options import MemoryOptions
from ..plan.plan import ParallelPlan
from ..plan.recomputation import OPTIONS
from ..system.hardware import Cluster
from ..units import format_bytes
from ..workload.base import Workload
from .breakdown import memory

WORTH_SAYING = 0.01  # of the activations: what saves less is as good as nothing


def memory_notes(model: Workload, cluster: Cluster, plan: ParallelPlan, options: MemoryOptions) -> Iterator[str]:
    """Sentences about settings that cost time and save next to nothing."""
    if plan.recompute == "none":
        return
    without = memory(model, cluster, replace(plan, recompute="none", **OPTIONS), options)
    own = memory(model, cluster, plan, options)
    whole = without.worst.activations_bytes
    saved = whole - own.stages[without.stage].activations_bytes
    if saved <= WORTH_SAYING * whole:
        yield f"recompute: {plan.recompute}{_modules(plan)} saves {format_bytes(max(saved, 0.0))} per device.{_reason(plan)}"


def _modules(plan: ParallelPlan) -> str:
    return f" of {', '.join(plan.recompute_modules)}" if plan.recompute == "selective" else ""


def _reason(plan: ParallelPlan) -> str:
    if plan.recompute != "selective" or not plan.is_flash:
        return ""
    return " Fused attention keeps no scores. Name other recompute_modules, or use recompute: none."
