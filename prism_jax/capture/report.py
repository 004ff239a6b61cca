"""Reports what a captured program holds, as plain data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..core.report import Report
from ..core.units import format_bytes, format_count


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
        axes = " x ".join(f"{axis} {size}" for axis, size in self.axes.items()) or "no axes"
        samples = f"{self.samples_per_step:,} samples"
        if self.tokens_per_sample:
            samples += f" of {self.tokens_per_sample:,} tokens"
        found = [
            f"{self.name}: {self.world:,} ranks, {axes}, captured by {self.front_end} from {self.source}",
            f"  step        {samples}, {self.micro_batches} micro-batches per replica",
            f"  parameters  {format_count(self.n_params)}",
            f"  fusion      {self.fusion}",
        ]
        for one in self.classes[:MOST_CLASSES]:
            found += _of_class(one)
        if len(self.classes) > MOST_CLASSES:
            found.append(f"  and {len(self.classes) - MOST_CLASSES:,} more classes")
        found += [f"  assumed: {sentence}" for sentence in self.assumptions]
        return [*found, f"wrote {self.file}"] if self.file else found


MOST_CLASSES = 8  # told one by one


def _of_class(one: ClassFacts) -> list[str]:
    forward, backward = one.flops_forward / 1e12, one.flops_backward / 1e12
    said = ", ".join(f"{axis} {format_bytes(size)}" for axis, size in one.axis_bytes.items())
    return [
        f"  {one.name}: {one.n_ranks:,} ranks of part {one.stage}, {one.rows:,} rows, {one.kernels:,} kernels a micro-batch",
        f"    forward {forward:.4g} TFLOP, backward {backward:.4g} TFLOP, {format_bytes(one.memory_bytes)} of memory traffic",
        *([f"    collectives {said}"] if said else []),
    ]
