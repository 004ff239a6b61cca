"""Phases of a step as `power.step_power` takes them: where the time goes, compute split by what draws how much.

Compute is split by kernel class, and what it loses to communication beside it (multiprocessors, memory bandwidth) stands alone:
then fewer products per second are made, and less is drawn. Shares are those of the noise-free cost of all chunks.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..cost.step import step_cost
from ..job import Job
from ..kernels import KERNEL_CLASSES


def power_phases(job: Job, breakdown_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase; they sum to those of `breakdown_s`.

    Args:
        job: what was predicted.
        breakdown_s: of `explain.breakdown`, with `compute`.
    """
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    by_class = cost.compute_s.sum(axis=(0, 1))
    whole = float(by_class.sum())
    slowed = min(job.efficiency.overlap_slowdown * float(cost.hidden_comm_s.sum()), 0.9 * whole) / whole
    compute_s = breakdown_s["compute"]
    out = {"gemm": 0.0, "attention": 0.0, "memory": 0.0}
    for name, seconds in zip(cost.classes, by_class, strict=True):
        out[KERNEL_CLASSES.named(name).knob] += compute_s * (1.0 - slowed) * float(seconds) / whole
    rest = {name: seconds for name, seconds in breakdown_s.items() if name != "compute"}
    return out | {"slowed": compute_s * slowed} | rest
