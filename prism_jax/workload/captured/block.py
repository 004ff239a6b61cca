"""One stage of a captured program as a block: its kernels, its collectives, and in which order both were issued."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...framework.memory_options import MemoryOptions
from ...plan.plan import ParallelPlan
from ..base import Comm, LanedRow, Parameters, SavedTensor
from ..kernels import KernelTable
from ..transformer.op_lists.elementwise import HOST_SHARE
from .kernels import COMPILED_SHARE, OPERATION_SHARE, kernel_of
from .named_chains import in_chains
from .plan_fields import gathers_parameters
from .program import RankClass, RankProgram, exchange_of
from .rows import CapturedComm, CapturedOp

DENSE, EXPERT, SHARDED = "dense", "expert", "sharded"
EAGER_SOURCES = ("torch", "et")
"""Whose rows are operations of a framework that starts them one by one."""
COMPILED_SOURCES = ("jax", "hlo")
"""Whose rows are kernels of one compiled program."""
_EXPERT_WORDS = ("expert", "moe")


@dataclass(frozen=True)
class CapturedBlock:
    """The rows of a class of ranks.

    Attributes:
        program: that they belong to.
        own: the class, its rows merged by the fusion policy.
        plan: under which it runs.
    """

    program: RankProgram
    own: RankClass
    plan: ParallelPlan

    @property
    def knob(self) -> str:
        """None of its own: rows of layers with experts say so themselves."""
        return ""

    @property
    def laned(self) -> tuple[LanedRow, ...]:
        """What runs once per micro-batch, in the order in which it was issued."""
        return self._laned

    @cached_property
    def _laned(self) -> tuple[LanedRow, ...]:
        times, experts, shares = self.own.times, _expert_layers(self.own), self._host_shares()
        found: list[LanedRow] = []
        for index, row in enumerate(self.own.rows):
            if row.phase == "opt":
                continue
            if isinstance(row, CapturedOp):
                if row.kind != "none":
                    kernel = kernel_of(row, self.plan, host_share=shares[index])
                    knob = "expert" if layer_of(row.module) in experts else ""
                    found.append(LanedRow(index, row.phase, times[index], kernel=kernel, knob=knob))
            elif (comm := self._comm(row)) is not None:
                found.append(LanedRow(index, row.phase, times[index], comm, wait=_needed_by(row, len(self.own.rows))))
        return tuple(found)

    def _host_shares(self) -> list[float]:
        """[row] host time of its start over that of a listed kernel; operations of an eager framework are none of these."""
        rows = self.own.rows
        if self.program.source in EAGER_SOURCES and self.program.fusion == "eager":
            return [OPERATION_SHARE] * len(rows)
        if self.program.source in COMPILED_SOURCES:
            return [COMPILED_SHARE] * len(rows)
        chains = in_chains(self.own) or [isinstance(row, CapturedOp) and row.fusible for row in rows]
        passes = [isinstance(row, CapturedOp) and row.kind in ("memory", "embedding") for row in rows]
        return [HOST_SHARE if in_chain and is_pass else 1.0 for in_chain, is_pass in zip(chains, passes, strict=True)]

    @property
    def repeats(self) -> tuple[tuple[int, int, int], ...]:
        """(first row, one past the last, times) of what runs several times, by the indices of `laned`."""
        return tuple((each.start, each.stop, each.times) for each in self.own.repeats)

    def _comm(self, row: CapturedComm) -> Comm | None:
        """A collective of a micro-batch; None: between stages, or part of the end of the step."""
        role = self.program.role(row.axis)
        if role == "pp" or row.ranks == 1:
            return None
        size = row.ranks
        if role == "dp":
            what = exchange_of(row, role)
            if what == "gradients" and (row.collective == "all_reduce" or not self._is_sharded):
                return None
            if what == "parameters" and not self._is_sharded:
                return None
            size = self._data_ranks(size)
        phase = "F" if row.phase == "F" else "B"
        ranks = 2 if row.law == "p2p" else size
        return Comm(role, row.law, phase, row.n_bytes, row.stride, ranks, count=float(row.count))

    def _data_ranks(self, size: int) -> int:
        """Members of a data-parallel group under a plan of another dp; groups of a fixed size keep theirs."""
        if self.plan.sharding == "hsdp":
            return size
        captured = self.program.degree("dp")
        return max(size * self.plan.dp // captured, 1) if size == captured else size

    @property
    def _is_sharded(self) -> bool:
        return self.plan.shard_group > 1 and gathers_parameters(self.program)

    @property
    def kernels(self) -> KernelTable:
        """Kernels of a micro-batch, repeats counted."""
        return KernelTable.of(
            row.kernel._replace(count=row.kernel.count * row.times) for row in self.laned if row.kernel is not None
        )

    @property
    def comms(self) -> tuple[Comm, ...]:
        """Collectives of a micro-batch, repeats counted."""
        return tuple(row.comm._replace(count=row.comm.count * row.times) for row in self.laned if row.comm is not None)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Those of experts apart, where ranks have different ones."""
        if self._is_sharded:
            return (Parameters(SHARDED, self.own.n_parameters / self.plan.shard_group),)
        experts = self.own.n_expert_parameters
        own = (Parameters(DENSE, self.own.n_parameters - experts),)
        return (*own, Parameters(EXPERT, experts)) if self.program.degree("ep") > 1 else own

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """As captured, or everything that the forward pass writes."""
        kept = self.own.saved_bytes
        if kept is None:
            kept = sum((op.output_bytes or op.n_bytes / 3.0) * n for op, n in self.own.ops if op.phase == "F")
        return (SavedTensor("captured", kept),)

    def forward_peak_bytes(self, rules: MemoryOptions) -> float:
        """What the largest operation touches."""
        return self._largest("F")

    def backward_peak_bytes(self, rules: MemoryOptions) -> float:
        """What the largest operation touches."""
        return self._largest("B", "W")

    def recomputed_bytes(self, rules: MemoryOptions) -> float:
        """Recomputation is part of the rows."""
        return 0.0

    def _largest(self, *phases: str) -> float:
        return max((op.n_bytes for op, _ in self.own.ops if op.phase in phases), default=0.0)


def _needed_by(row: CapturedComm, n_rows: int) -> int | None:
    """Index of the row that waits for a collective; None: the next one."""
    if not row.asynchronous:
        return None
    return n_rows if row.wait is None else row.wait


def layer_of(module: str) -> str:
    """The layer that a module belongs to: `layers.3` of layers.3.mlp.experts; the module itself where none is numbered."""
    parts = module.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: index + 1])
    return module


def _expert_layers(own: RankClass) -> frozenset[str]:
    """Layers that have experts, by the names of their modules."""
    return frozenset(
        layer_of(row.module) for row in own.rows if any(word in row.module.lower() for word in _EXPERT_WORDS)
    )
