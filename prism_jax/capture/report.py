"""Reports what a captured program, or execution traces, hold: work and collectives, and how much of it a profile has timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..core.page import Block, Card, Facts, Table, left_out, notes
from ..core.readable import counted, percent
from ..core.report import Report
from ..core.units import format_bytes, format_count, format_s


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
            next_step="a job with this model" if self.file else "-o FILE keeps it as a model",
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


@dataclass(frozen=True)
class OpKindFacts:
    """Operators of one kind in the step of a rank.

    Attributes:
        kind, phase: gemm, conv, ...; F, B or opt.
        n_ops: how many.
        flops, bytes: of all of them.
        measured_s: seconds of their kernels; None where no profile has them.
    """

    kind: str
    phase: str
    n_ops: int
    flops: float
    bytes: float
    measured_s: float | None = None


@dataclass(frozen=True)
class CollectiveFacts:
    """Collectives of one kind and group in the step of a rank; `bytes` of all of them."""

    collective: str
    axis: str
    phase: str
    ranks: int
    n: int
    bytes: float


@dataclass(frozen=True)
class MatchedKernels:
    """Share of a profile that was found in the execution trace of its process.

    Attributes:
        trace, profile: files.
        device: on which the profile was recorded.
        kernel_s: seconds of all kernels.
        earlier_s: of them, of kernels whose launch is not in the profile: they were started before it began, by the step before.
        communication_s: of them, of collectives, which wait for peers.
        matched: share of `kernel_s` without `earlier_s` whose operators are in the trace; 1 of none.
        same_process: whether both recorded the same process.
        missing: operators that are not, the longest first.
    """

    trace: str
    profile: str
    device: str
    kernel_s: float
    earlier_s: float
    communication_s: float
    matched: float
    same_process: bool
    missing: tuple[str, ...]


@dataclass(frozen=True)
class ExecutionTraceReport(Report):
    """Ranks, operators and collectives of execution traces.

    Attributes:
        name: of the file or folder.
        schemas: versions of the format.
        n_traces, world: ranks that were recorded, and ranks of the job.
        n_nodes, n_dependencies: of the first rank: nodes of all steps; pairs of which one reads what the other wrote.
        n_steps: in the first trace; what follows is its last whole step.
        n_classes: kinds of ranks, by what they run.
        parameters: whose gradients a rank accumulates.
        samples: of the step of a rank; 0 where no operator says it.
        ops, collectives: of the first rank.
        kernels: one entry for each profile.
        assumptions: sentences.
    """

    kind: ClassVar[str] = "execution-trace"

    name: str
    schemas: tuple[str, ...]
    n_traces: int
    world: int
    n_nodes: int
    n_dependencies: int
    n_steps: int
    n_classes: int
    parameters: float
    samples: int
    ops: tuple[OpKindFacts, ...]
    collectives: tuple[CollectiveFacts, ...]
    kernels: tuple[MatchedKernels, ...]
    assumptions: tuple[str, ...]

    def card(self) -> Card:
        n, flops = sum(one.n_ops for one in self.ops), sum(one.flops for one in self.ops)
        matched = ", ".join(percent(one.matched) for one in [one for one in self.kernels if one.kernel_s > 0.0][:3])
        timed = f"profiles: {matched} of kernel time matched"
        sent = (f"{one.n:,} {one.collective} ({format_bytes(one.bytes)})" for one in self.collectives[:3])
        return Card(
            f"{self.name}: execution traces of {self.n_traces:,} of {self.world:,} ranks",
            f"The last step of a rank has {n:,} operators, {format_count(flops)} FLOPs.",
            facts={
                "size": self._size,
                "collectives": ", ".join(sent) or "none",
                "kernels": timed if matched else "no kernel times: --kernels PROFILE adds them",
            },
            evidence=f"{self.n_nodes:,} nodes, {self.n_dependencies:,} data dependencies, schema {', '.join(self.schemas)}",
            assumptions=self.assumptions[:1],
            next_step="prism-jax capture: a model of it",
        )

    @property
    def _size(self) -> str:
        samples = f"{self.samples:,} samples per rank and step" if self.samples else "samples per step not stated"
        return f"{format_count(self.parameters)} parameters, {samples}"

    def blocks(self) -> Sequence[Block]:
        facts = {
            "recorded": f"{self.n_traces:,} of {self.world:,} ranks; kinds of ranks: {self.n_classes:,}",
            "schema": ", ".join(self.schemas),
            "first rank": f"{self.n_nodes:,} nodes, {self.n_dependencies:,} data dependencies; steps: {self.n_steps:,}",
            "size": self._size,
        }
        return (
            Facts("Traces", facts),
            Table.of("Last step of the first rank", self.ops, TRACE_OPS),
            Table.of("Its collectives", self.collectives, TRACE_COLLECTIVES),
            *map(_kernels, self.kernels),
            *notes(self.assumptions),
        )


TRACE_OPS: dict[str, Callable[[OpKindFacts], str]] = {
    "op": lambda one: one.kind,
    "phase": lambda one: one.phase,
    "n": lambda one: f"{one.n_ops:,}",
    "FLOPs": lambda one: format_count(one.flops) if one.flops else "",
    "bytes": lambda one: format_bytes(one.bytes),
    "measured": lambda one: "" if one.measured_s is None else format_s(one.measured_s),
}
TRACE_COLLECTIVES: dict[str, Callable[[CollectiveFacts], str]] = {
    "collective": lambda one: one.collective,
    "group": lambda one: one.axis,
    "phase": lambda one: one.phase,
    "ranks": lambda one: f"{one.ranks:,}",
    "n": lambda one: f"{one.n:,}",
    "bytes": lambda one: format_bytes(one.bytes),
}


def _kernels(one: MatchedKernels) -> Facts:
    process = "" if one.same_process else " (of another process)"
    earlier = f", {format_s(one.earlier_s)} of it started before the profile" if one.earlier_s else ""
    facts = {
        "matched": f"{one.matched:.2%} of kernel time",
        "kernels": f"{format_s(one.kernel_s)} on {one.device or 'a GPU'}{earlier}",
        "communication": format_s(one.communication_s),
        "not in the trace": ", ".join(one.missing),
    }
    return Facts(f"{one.profile}{process}", facts)
