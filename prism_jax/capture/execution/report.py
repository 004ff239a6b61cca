"""Reports on execution traces: what their last step does, and how much of it a profile has timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...core import units
from ...core.page import Table
from ...core.page_text import block_lines
from ...core.report import Report


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
    """How much of a profile was found in the execution trace of its process.

    Attributes:
        trace, profile: files.
        device: that the profile was recorded on.
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
    """What execution traces hold.

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

    def lines(self) -> list[str]:
        found = [
            f"{self.name}: execution traces of {self.n_traces:,} of {self.world:,} ranks, {self.n_classes:,} kinds of ranks",
            f"schema {', '.join(self.schemas)}; first rank: {self.n_nodes:,} nodes, {self.n_dependencies:,} data dependencies, "
            f"steps: {self.n_steps:,}",
            f"{units.format_count(self.parameters)} parameters, {self.samples:,} samples per rank and step",
            "",
            *_ops(self),
            *_collectives(self),
            *(line for one in self.kernels for line in _kernels(one)),
        ]
        return found + [f"note: {note}" for note in self.assumptions]


def _ops(report: ExecutionTraceReport) -> list[str]:
    rows = [
        (
            one.kind,
            one.phase,
            f"{one.n_ops:,}",
            units.format_count(one.flops) if one.flops else "",
            units.format_bytes(one.bytes),
            "" if one.measured_s is None else units.format_s(one.measured_s),
        )
        for one in report.ops
    ]
    return block_lines(Table("last step of the first rank", ("op", "phase", "n", "FLOPs", "bytes", "measured"), rows))


def _collectives(report: ExecutionTraceReport) -> list[str]:
    rows = [
        (one.collective, one.axis, one.phase, f"{one.ranks:,}", f"{one.n:,}", units.format_bytes(one.bytes))
        for one in report.collectives
    ]
    return block_lines(Table("", ("collective", "group", "phase", "ranks", "n", "bytes"), rows)) if rows else []


def _kernels(one: MatchedKernels) -> list[str]:
    process = "" if one.same_process else " (of another process)"
    earlier = f", {units.format_s(one.earlier_s)} of it started before the profile" if one.earlier_s else ""
    where = one.device or "a GPU"
    found = [
        f"{one.profile}{process}: {one.matched:.2%} of kernel time matched; {units.format_s(one.kernel_s)} on {where}{earlier},"
        f" {units.format_s(one.communication_s)} communication"
    ]
    return found + [f"  not in the trace: {name}" for name in one.missing]
