"""CaptureReport: what a captured program holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..report import Report


@dataclass(frozen=True)
class ClassFacts:
    """One class of ranks; amounts are of one rank and micro-batch.

    Attributes:
        rows: as they were captured; kernels: what the fusion policy makes of its operations, repeats counted.
        flops_forward, flops_backward: of products, convolutions and attention.
        memory_bytes: of device memory that its operations move.
        axis_bytes: axis -> bytes of its collectives, those at the end of the step included, as their laws count them.
    """

    name: str
    n_ranks: int
    stage: int
    rows: int
    kernels: int
    n_parameters: float
    flops_forward: float
    flops_backward: float
    memory_bytes: float
    axis_bytes: Mapping[str, float]


@dataclass(frozen=True)
class CaptureReport(Report):
    """A program that was captured.

    Attributes:
        front_end: what read it.
        source: the file, and what it defines.
        world: ranks of the job.
        axes: dimension of the mesh -> size.
        fusion: how pointwise operations are merged.
        assumptions: what was assumed where the code does not say it.
        file: where it was written; empty where it was not.
    """

    kind: ClassVar[str] = "capture"

    name: str
    front_end: str
    source: str
    file: str
    world: int
    axes: Mapping[str, int]
    micro_batches: int
    samples_per_step: int
    tokens_per_sample: int
    n_params: int
    fusion: str
    versions: Mapping[str, str]
    classes: tuple[ClassFacts, ...]
    assumptions: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        from ..text.capture import lines

        return lines(self)
