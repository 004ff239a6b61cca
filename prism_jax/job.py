"""Job: a model, a cluster, a plan and a variability that belong together."""

from __future__ import annotations

from dataclasses import dataclass

from .plan import ParallelPlan
from .system.hardware import Cluster
from .variability.tree import Variability
from .workload.transformer import TransformerSpec


@dataclass(frozen=True, eq=False)
class Job:
    """What one training step is made of; compared by identity, so that what is derived from it can be cached."""

    model: TransformerSpec
    cluster: Cluster
    plan: ParallelPlan
    variability: Variability
    name: str = "job"
