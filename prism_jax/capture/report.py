"""Reports what a captured program holds, as plain data and as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..core.page import Block, Card, Facts, Table, left_out, more, notes
from ..core.readable import counted
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
        front_end: reader of the source.
        source: the file, and what it defines.
        world: ranks of the job.
        axes: dimension of the mesh -> size.
        fusion: how pointwise operations are merged.
        assumptions: made where the code does not state a fact.
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

    def card(self) -> Card:
        n_class, one = len(self.classes), self.classes[0]
        flops, kernels = _tflop(one.flops_forward + one.flops_backward), f"{one.kernels:,} kernels"
        return Card(
            f"{self.name}: {counted(self.world, 'rank')}, {self._axes}",
            f"Captured: {format_count(self.n_params)} parameters, {self._samples} a step.",
            "good",
            facts={
                "work": f"{flops}, {kernels}, {format_bytes(one.memory_bytes)} moved, a rank and micro-batch",
                "collectives": _collectives(one),
                "ranks": f"{n_class:,} kinds by what they run" if n_class > 1 else "",
            },
            evidence=f"{self.source}, read by {self.front_end}",
            assumptions=self.assumptions[:1],
            next_step=f"{'a job with this model' if self.file else '-o FILE keeps it as a model'}; {more(self.assumptions)}",
        )

    @property
    def _axes(self) -> str:
        return " x ".join(f"{axis} {size}" for axis, size in self.axes.items()) or "no axes"

    @property
    def _samples(self) -> str:
        found = counted(self.samples_per_step, "sample")
        return f"{found} of {self.tokens_per_sample:,} tokens" if self.tokens_per_sample else found

    def blocks(self) -> Sequence[Block]:
        facts = {
            "captured by": f"{self.front_end} from {self.source}",
            "ranks": f"{self.world:,}, {self._axes}",
            "step": f"{self._samples}, micro-batches per replica: {self.micro_batches:,}",
            "parameters": format_count(self.n_params),
            "fusion": self.fusion,
        }
        return (
            Facts("Program", facts),
            Table.of("Kinds of ranks (per micro-batch)", self.classes[:MOST_CLASSES], CLASSES),
            left_out(len(self.classes), MOST_CLASSES, "kinds of ranks"),
            *notes(self.assumptions, "assumed"),
        )


MOST_CLASSES = 8  # told one by one


def _tflop(flops: float) -> str:
    return f"{flops / 1e12:.4g} TFLOP"


def _collectives(one: ClassFacts) -> str:
    return ", ".join(f"{axis} {format_bytes(size)}" for axis, size in one.axis_bytes.items()) or "none"


CLASSES: dict[str, Callable[[ClassFacts], str]] = {
    "kind": lambda one: one.name,
    "ranks": lambda one: f"{one.n_ranks:,}",
    "part": lambda one: f"{one.stage}",
    "rows": lambda one: f"{one.rows:,}",
    "kernels": lambda one: f"{one.kernels:,}",
    "forward": lambda one: _tflop(one.flops_forward),
    "backward": lambda one: _tflop(one.flops_backward),
    "memory traffic": lambda one: format_bytes(one.memory_bytes),
    "collectives": _collectives,
}
