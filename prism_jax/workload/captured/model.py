"""CapturedModel: a captured program as a workload. Its blocks are its stages: operations as kernels, collectives, their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from ...core.content import ByContent
from ...core.errors import Problem, SpecError
from ...framework.base import MemoryOptions
from ...plan.fields import QUANTISED
from ...plan.plan import ParallelPlan
from ...system.hardware import Device
from ..base.kernels import CONVOLUTION, ROUTED, Kernel, KernelTable
from ..base.workload import DENSE, Block, BlockRun, Comm, LanedRow, Parameters, SavedTensor, Split, WorkloadDefaults
from ..transformer.op_lists import HOST_SHARE
from .check import FIXED, check_program, gathers_parameters, is_sequence_parallel, plan_fields
from .fusion import fused, in_chains
from .program import AMOUNTS, CapturedComm, CapturedOp, RankClass, RankProgram, exchange_of

# Host time of an operation of an eager framework over that of a listed kernel: 75 us, which stands for three launches of 23 us.
# Plain PyTorch starts 1.6 kernels for a row of its capture; a step that the host paces takes 37 us a row
# (experiments/capture/measured_gpu).
OPERATION_SHARE = 0.5
# The same of a kernel of a program that XLA compiled: started from C++, a few microseconds each, without Python in between.
# BERT-large in JAX starts 2,496 kernels in a step of 43 ms that the device paces (the same): less than 17 us.
COMPILED_SHARE = 0.1
_BACKWARD_LAUNCHES = 3.0  # of fused attention: preprocess, keys and values, queries (arXiv 2307.08691)
# Of the backward pass of a norm: gradient of the input, those of the weights (aten/src/ATen/native/cuda/layer_norm_kernel.cu).
_NORM_BACKWARD, _NORM_LAUNCHES = "norm_backward", 2.0


@dataclass(frozen=True)
class MeasuredSeconds:
    """A kernel whose time was measured inside a step: no correction from microbenchmarks to steps applies to it.

    Attributes:
        alone_s: seconds on the device that it was measured on.
    """

    alone_s: float
    in_step: ClassVar[bool] = True

    def seconds(self, device: Device, cache_bytes: float) -> float:
        """Returns the measured seconds, on any device."""
        return self.alone_s


def kernel_of(op: CapturedOp, plan: ParallelPlan, *, host_share: float) -> Kernel:
    """One operation as a kernel that runs `op.count` times; `host_share`: of starting it, over a listed kernel."""
    law = None if op.seconds is None else MeasuredSeconds(op.seconds)
    name = f"{op.module}.{op.name}" if op.module else op.name
    kernel = Kernel(
        name, op.phase, "memory", op.flops, op.n_bytes, count=float(op.count), law=law, host_share=host_share
    )
    if op.kind in ("gemm", "conv"):
        m, n, k, batch = (float(size) for size in op.sizes)
        variant = CONVOLUTION if op.kind == "conv" else ""
        return kernel._replace(kernel="gemm", m=m, n=n, k=k, batch=batch, variant=variant, dtype=_dtype(op, plan))
    if op.kind != "attention":
        launches = _NORM_LAUNCHES if _NORM_BACKWARD in op.name else 1.0
        return kernel._replace(flops=0.0, n_launch=launches)
    batch, rows, keys, d_qk, d_v = (float(size) for size in op.shape)
    fused = kernel._replace(kernel="attention", m=rows, n=keys, k=(d_qk + d_v) / 2, batch=batch, dtype="bf16")
    backward = op.phase != "F"
    return fused._replace(
        variant=plan.attention_kernel, flash_backward=backward, n_launch=_BACKWARD_LAUNCHES if backward else 1.0
    )


def _dtype(op: CapturedOp, plan: ParallelPlan) -> str:
    """Format that it runs in: that of the plan, or 16 bits where it leaves fp8."""
    if plan.dtype in QUANTISED and op.dtype not in ("fp8", "fp4", plan.dtype):
        return "bf16"
    return "plan"


EXPERT, SHARDED = "expert", "sharded"
EAGER_SOURCES = ("torch", "et")
"""Sources whose rows are operations of a framework that starts them one by one."""
COMPILED_SOURCES = ("jax", "hlo")
"""Sources whose rows are kernels of one compiled program."""
_SHARED = "shared"  # in names of experts that every token passes


@dataclass(frozen=True)
class CapturedBlock(Block):
    """The rows of a class of ranks: those of routed experts say so themselves, and recomputation is part of them.

    Attributes:
        program: to which they belong.
        own: the class, its rows merged by the fusion policy.
        plan: under which it runs.
    """

    program: RankProgram
    own: RankClass
    plan: ParallelPlan

    @cached_property
    def laned(self) -> tuple[LanedRow, ...]:
        """Rows that run once per micro-batch, in the order in which they were issued."""
        times, routing, shares = self.own.times, _routing_modules(self.own), self._host_shares()
        found: list[LanedRow] = []
        for index, row in enumerate(self.own.rows):
            if row.phase == "opt":
                continue
            if isinstance(row, CapturedOp):
                if row.kind != "none":
                    kernel = kernel_of(row, self.plan, host_share=shares[index])._replace(knob=_knob_of(row, routing))
                    found.append(LanedRow(index, row.phase, times[index], kernel=kernel))
            elif (comm := self._comm(row)) is not None:
                found.append(LanedRow(index, row.phase, times[index], comm, wait=_needed_by(row, len(self.own.rows))))
        return tuple(found)

    def _host_shares(self) -> list[float]:
        """Host time of its start over that of a listed kernel, [row]; operations of an eager framework are none of these."""
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
        """Parameters of the block; those of experts are a group of their own where ranks have different ones."""
        if self._is_sharded:
            return (Parameters(SHARDED, self.own.n_parameters / self.plan.shard_group),)
        experts = self.own.n_expert_parameters
        own = (Parameters(DENSE, self.own.n_parameters - experts),)
        return (*own, Parameters(EXPERT, experts)) if self.program.degree("ep") > 1 else own

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the captured bytes of saved tensors, or all that the forward pass writes where none were captured."""
        kept = self.own.saved_bytes
        if kept is None:
            kept = sum((op.output_bytes or op.n_bytes / 3.0) * n for op, n in self.own.ops if op.phase == "F")
        return (SavedTensor("captured", kept),)

    def forward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Bytes that the largest forward operation reads and writes."""
        return self._largest("F")

    def backward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Bytes that the largest backward operation reads and writes."""
        return self._largest("B", "W")

    def _largest(self, *phases: str) -> float:
        return max((op.n_bytes for op, _ in self.own.ops if op.phase in phases), default=0.0)


def _needed_by(row: CapturedComm, n_rows: int) -> int | None:
    """Index of the row that waits for a collective; None: the next one."""
    if not row.asynchronous:
        return None
    return n_rows if row.wait is None else row.wait


def _routing_modules(own: RankClass) -> frozenset[tuple[str, ...]]:
    """Modules that route tokens, as parts of their paths: layers, 3, mlp of layers.3.mlp.experts; layers.3.moe itself."""
    found = set()
    for module in {row.module for row in own.rows}:
        parts = _parts(module)
        first = next((at + 1 for at, part in enumerate(parts) if part.isdigit()), 0)  # no name of a whole model
        for at, part in enumerate(parts[first:], first):
            if "moe" in part:
                found.add(parts[: at + 1])
            elif "expert" in part and _SHARED not in part:
                found.add(parts[:at])
    return frozenset(found - {()})


def _knob_of(row: CapturedOp, routing: frozenset[tuple[str, ...]]) -> str:
    """Knob of a row: that of experts where it routes tokens or is part of a routed expert; tokens all pass shared ones."""
    parts = _parts(row.module)
    is_shared = any(_SHARED in part for part in parts)
    return ROUTED if not is_shared and any(parts[:n] in routing for n in range(1, len(parts) + 1)) else ""


def _parts(module: str) -> tuple[str, ...]:
    return tuple(re.split(r"[./]", module.lower()))


@dataclass(frozen=True, eq=False)
class CapturedModel(WorkloadDefaults, ByContent):
    """Model that is given by the operations of its ranks.

    Attributes:
        program: as it was captured.

    Raises:
        SpecError: the program contradicts itself.
    """

    program: RankProgram

    def __post_init__(self) -> None:
        check_program(self.program)
        plan_fields(self.program)

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.program.name

    @property
    def sample_unit(self) -> str:
        """Tokens where samples are sequences."""
        return "tokens" if self.program.tokens_per_sample else "samples"

    @property
    def has_experts(self) -> bool:
        """Whether ranks exchange tokens with experts."""
        return self.program.degree("ep") > 1

    @cached_property
    def calibrated_as(self) -> str:
        """Kind of model whose corrections apply, by the largest part of its work: empty for transformers."""
        if self.program.model_kind:
            return "" if self.program.model_kind == "transformer" else self.program.model_kind
        ops = [op for one in self.program.classes for op, _ in one.ops]
        if attention := [op for op in ops if op.kind == "attention"]:
            return "" if any(op.causal for op in attention) else "encoder"
        return "cnn" if any(op.kind == "conv" for op in ops) else ""

    @property
    def sure_software(self) -> dict[str, object]:
        """Software settings that follow from the fusion policy."""
        return {"compile": self.program.fusion in ("inductor", "xla")}

    @cached_property
    def stages(self) -> tuple[RankClass, ...]:
        """Class that sets the pace of each stage, with kernels merged, [stage]."""
        return tuple(fused(one, self.program.fusion) for one in self.program.slowest_classes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """One block for every captured stage; equal neighbours are a run."""
        runs: list[BlockRun] = []
        for kind in self._kinds:
            if runs and runs[-1].kind == kind:
                runs[-1] = runs[-1]._replace(count=runs[-1].count + 1)
            else:
                runs.append(BlockRun(kind, 1, is_unit=False))
        return tuple(runs)

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        """Name of the block of each stage, [stage]; stages that run the same have one name."""
        first: dict[tuple[object, ...], str] = {}
        return tuple(
            first.setdefault((one.rows, one.repeats, *(getattr(one, name) for name in AMOUNTS)), f"stage_{stage}")
            for stage, one in enumerate(self.stages)
        )

    def groups(self, plan: ParallelPlan) -> tuple[tuple[str, float], ...]:
        """One way; sharded parameters are gathered by the rows themselves."""
        if plan.shard_group > 1 and gathers_parameters(self.program):
            return ((SHARDED, plan.shard_group),)
        ep = self.program.degree("ep")
        return ((DENSE, 1), (EXPERT, plan.expert_split)) if ep > 1 else ((DENSE, 1),)

    def block(self, kind: str, plan: ParallelPlan) -> CapturedBlock:
        """The stage of that name."""
        return CapturedBlock(self.program, self.stages[self._kinds.index(kind)], plan)

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """The largest that a stage hands on."""
        own = max((_sent(one) for one in self.stages), default=0.0)
        return own * (plan.tp if is_sequence_parallel(self.program) else 1)

    def n_params(self) -> int:
        """Number of parameters of the program."""
        return self.program.n_params()

    def units_per_step(self, plan: ParallelPlan) -> int:
        """Tokens or samples of a step."""
        return plan.global_batch * (self.program.tokens_per_sample or 1)

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """FLOPs of all rows on all devices; recomputed rows are among them and cannot be distinguished."""
        per_rank = sum(one.flops() for one in self.stages)
        return per_rank * plan.n_micro_batch * plan.tp * plan.cp * plan.dp

    def deeper(self, n: int) -> CapturedModel:
        """A capture has no other depth.

        Raises:
            SpecError: always.
        """
        raise SpecError(f"{self.name}: a capture has the stages that it was captured with. Capture the deeper model.")

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """The degrees that it was captured with."""
        kinds = {"tp": "tensor", "cp": "context", "ep": "expert"}
        told = {axis: f"{kind}-parallel ranks of the capture" for axis, kind in kinds.items()}
        return {axis: Split(self.program.degree(axis), text) for axis, text in told.items()}

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """Fields that the rows were written under and that the plan changes."""
        own = plan_fields(self.program)
        for name in self.fixed_fields:
            captured = own.get(name, getattr(_DEFAULTS, name))
            if _written_alike(name, getattr(plan, name)) != _written_alike(name, captured):
                text = (
                    f"{getattr(plan, name)}, but the program was captured with {captured}. Keep it, or capture again."
                )
                yield Problem(name, text)
        if self.program.n_stage % plan.n_chunk:
            n = self.program.n_stage
            text = f"{plan.pp}: pp * virtual_stages = {plan.n_chunk} does not divide the {n} stages of the capture"
            yield Problem("pp", text)

    @property
    def fixed_fields(self) -> tuple[str, ...]:
        """Fields of a plan that have one value only."""
        return FIXED


_DEFAULTS = ParallelPlan(micro_batch=1, global_batch=1)


def _written_alike(name: str, value: object) -> object:
    """Values of a field under which the rows are the same have one name: ZeRO-1 and 2 exchange alike."""
    return 1 if name == "zero_stage" and value == 2 else value


def _sent(one: RankClass) -> float:
    if one.sends_bytes:
        return one.sends_bytes
    return max((comm.n_bytes for comm, _ in one.comms if comm.collective == "send" and comm.phase == "F"), default=0.0)
