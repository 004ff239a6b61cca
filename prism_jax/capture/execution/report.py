"""Reports on execution traces: what their last step does, and how much of it a profile has timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...core import units
from ...core.page import Block, Card, Facts, Table, more, notes
from ...core.readable import percent
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
        sent = (f"{one.n:,} {one.collective} ({units.format_bytes(one.bytes)})" for one in self.collectives[:3])
        return Card(
            f"{self.name}: execution traces of {self.n_traces:,} of {self.world:,} ranks",
            f"The last step of a rank has {n:,} operators, {units.format_count(flops)} FLOPs.",
            facts={
                "size": self._size,
                "collectives": ", ".join(sent) or "none",
                "kernels": timed if matched else "no kernel times: --kernels PROFILE adds them",
            },
            evidence=f"{self.n_nodes:,} nodes, {self.n_dependencies:,} data dependencies, schema {', '.join(self.schemas)}",
            assumptions=self.assumptions[:1],
            next_step=f"prism-jax capture: a model of it; {more(self.assumptions)}",
        )

    @property
    def _size(self) -> str:
        samples = f"{self.samples:,} samples per rank and step" if self.samples else "samples per step not stated"
        return f"{units.format_count(self.parameters)} parameters, {samples}"

    def blocks(self) -> Sequence[Block]:
        facts = {
            "recorded": f"{self.n_traces:,} of {self.world:,} ranks; kinds of ranks: {self.n_classes:,}",
            "schema": ", ".join(self.schemas),
            "first rank": f"{self.n_nodes:,} nodes, {self.n_dependencies:,} data dependencies; steps: {self.n_steps:,}",
            "size": self._size,
        }
        return (
            Facts("Traces", facts),
            Table.of("Last step of the first rank", self.ops, OPS),
            Table.of("Its collectives", self.collectives, COLLECTIVES),
            *map(_kernels, self.kernels),
            *notes(self.assumptions),
        )


OPS: dict[str, Callable[[OpKindFacts], str]] = {
    "op": lambda one: one.kind,
    "phase": lambda one: one.phase,
    "n": lambda one: f"{one.n_ops:,}",
    "FLOPs": lambda one: units.format_count(one.flops) if one.flops else "",
    "bytes": lambda one: units.format_bytes(one.bytes),
    "measured": lambda one: "" if one.measured_s is None else units.format_s(one.measured_s),
}
COLLECTIVES: dict[str, Callable[[CollectiveFacts], str]] = {
    "collective": lambda one: one.collective,
    "group": lambda one: one.axis,
    "phase": lambda one: one.phase,
    "ranks": lambda one: f"{one.ranks:,}",
    "n": lambda one: f"{one.n:,}",
    "bytes": lambda one: units.format_bytes(one.bytes),
}


def _kernels(one: MatchedKernels) -> Facts:
    process = "" if one.same_process else " (of another process)"
    earlier = f", {units.format_s(one.earlier_s)} of it started before the profile" if one.earlier_s else ""
    facts = {
        "matched": f"{one.matched:.2%} of kernel time",
        "kernels": f"{units.format_s(one.kernel_s)} on {one.device or 'a GPU'}{earlier}",
        "communication": units.format_s(one.communication_s),
        "not in the trace": ", ".join(one.missing),
    }
    return Facts(f"{one.profile}{process}", facts)
