"""Capabilities: which plans a framework can run as it is published, and how close to full its devices may be planned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """Values of a plan that a framework has; None: all. A search stays within them.

    Attributes:
        schedules: pipeline schedules; empty: no pipelines.
        zero_stages: of parameters that are not sharded by FSDP.
        sharding: as in `ParallelPlan`.
        recompute: as in `ParallelPlan`.
        max_tp, max_cp: largest degrees.
        sequence_parallel: whether it has sequence parallelism.
        even_chunks: every model chunk of a pipeline holds as many layers, unless layers are placed by hand.
        source: where that is written.
    """

    schedules: tuple[str, ...] | None = None
    zero_stages: tuple[int, ...] | None = None
    sharding: tuple[str, ...] | None = None
    recompute: tuple[str, ...] | None = None
    max_tp: int | None = None
    max_cp: int | None = None
    sequence_parallel: bool = True
    even_chunks: bool = False
    source: str = ""


ANYTHING = Capabilities()
