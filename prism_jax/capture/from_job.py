"""Makes the program of a job of ours as if it had been captured, kernel by kernel.

It is the independent end of tests: what a front end reads off code is compared with what the job's own blocks say, and what a
prediction makes of the rows with what it makes of the blocks. Of overlap only that of sharded parameters is written down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import SpecError
from ..cost.partition import (
    ChunkBlocks,
    Gathered,
    block_parameters,
    chunk_blocks,
    copy_kernels,
    gather_comms,
    gradient_bytes,
    sharing_ranks,
    stage_weights,
    weight_bytes,
)
from ..framework.base import MemoryOptions
from ..job.job import Job
from ..plan.plan import ParallelPlan
from ..workload.base.kernels import Kernel
from ..workload.base.workload import BlockRun, Comm, Workload, distinct_runs, total_bytes
from ..workload.captured.program import DTYPES, CapturedComm, CapturedOp, CapturedRow, RankClass, RankProgram, Repeat
from ..workload.catalog import kind_of


def program_of_job(job: Job) -> RankProgram:
    """The program that the ranks of a job run.

    Raises:
        SpecError: kernels whose time does not follow from their sizes.
    """
    job.check()
    plan, model = job.plan, job.model
    chunks = chunk_blocks(model, plan)
    classes = tuple(_stage(job, stage, chunk) for stage, chunk in enumerate(chunks))
    kind = kind_of(model)
    axes = {name: getattr(plan, name) for name in (*plan.axis_order, "ep") if getattr(plan, name) > 1}
    if plan.ep > 1 and plan.expert_tp != plan.tp:
        axes["etp"] = plan.expert_tp
    return RankProgram(
        name=job.name,
        world=plan.n_devices,
        axes=axes,
        classes=classes,
        micro_batches=plan.n_micro_batch,
        samples_per_step=plan.global_batch,
        tokens_per_sample=plan.seq_len,
        source="spec",
        assumptions=("kernels, collectives and saved tensors are those of the job's blocks",),
        n_parameters=float(model.n_params()),
        model_kind="" if kind is None else kind.name,
    )


def _stage(job: Job, stage: int, chunk: ChunkBlocks) -> RankClass:
    """The rows of a model chunk."""
    plan, model = job.plan, job.model
    runs = [(run, n) for run, n in zip(distinct_runs(model), chunk, strict=True) if n]
    rows = _Rows(model, plan)
    for run, n in runs:
        rows.add_pass(run, n, "F")
    for run, n in reversed(runs):
        rows.add_pass(run, n, "BW")
    groups = dict(model.groups(plan))
    total = stage_weights(model, plan, [chunk], [(0,)])[0].count.tolist()
    experts = sum(count for count, split in zip(total, groups.values(), strict=True) if split != 1)
    rows.add_end(total, list(groups.values()))
    saved = sum(total_bytes(model.block(run.kind, plan).saved(MemoryOptions())) * n for run, n in runs)
    return RankClass(
        name=f"stage {stage}",
        n_ranks=plan.n_devices // plan.pp,
        stage=stage,
        rows=tuple(rows.rows),
        repeats=tuple(rows.repeats),
        n_parameters=sum(total),
        sends_bytes=model.boundary_bytes(plan) / (plan.tp if plan.sequence_parallel else 1)
        if stage < plan.n_chunk - 1
        else 0.0,
        saved_bytes=saved,
        n_expert_parameters=experts,
    )


class _Rows:
    """Rows of a stage as they are written down."""

    def __init__(self, model: Workload, plan: ParallelPlan) -> None:
        self.model, self.plan = model, plan
        self.rows: list[CapturedRow] = []
        self.repeats: list[Repeat] = []
        self.is_first = {"F": True, "BW": True}

    def add_pass(self, run: BlockRun, n: int, phases: str) -> None:
        """One pass of `n` equal blocks; their parameters are gathered one block ahead."""
        gathers, scatters = self._exchanges(run, phases)
        own = self._block(run, phases)
        if not gathers or not self.plan.overlap.dp:
            self._repeat([*gathers, *own, *scatters], n)
            return
        before = [replace(row, asynchronous=True, wait=None) for row in gathers]
        self.rows += gathers[:1] if self.is_first[phases] else before
        self.is_first[phases] = False
        start = len(self.rows)
        ahead = [replace(row, asynchronous=True, wait=start + i) for i, row in enumerate(gathers)]
        late = [replace(row, asynchronous=True) for row in scatters]
        if n > 1:
            self._repeat([*ahead, *own, *late], n - 1)
        self.rows += [*own, *late]

    def _repeat(self, rows: list[CapturedRow], times: int) -> None:
        start = len(self.rows)
        self.rows += rows
        if times > 1 and rows:
            self.repeats.append(Repeat(start, len(self.rows), times))

    def _block(self, run: BlockRun, phases: str) -> list[CapturedRow]:
        kind, block = run.kind, self.model.block(run.kind, self.plan)
        copies = copy_kernels(self.plan, self._gathered(run), run.is_unit)
        rows: list[CapturedRow] = []
        for phase in phases:
            kernels = [kernel for kernel in (*copies, *block.kernels.ops) if kernel.phase == phase]
            rows += [op_of(kernel, kind, self.plan) for kernel in kernels]
            rows += [_comm(comm, kind, self.plan) for comm in block.comms if comm.phase == phase]
        return rows

    def _exchanges(self, run: BlockRun, phases: str) -> tuple[list[CapturedComm], list[CapturedComm]]:
        """Gatherings of sharded parameters, and scatterings of their gradients."""
        found = [comm for comm in gather_comms(self.plan, self._gathered(run), run.is_unit) if comm.phase == phases[0]]
        made = [(comm.kind, _comm(comm, run.kind, self.plan)) for comm in found]
        gathers = [replace(row, purpose="parameters") for kind, row in made if kind == "all_gather"]
        return gathers, [replace(row, purpose="gradients") for kind, row in made if kind != "all_gather"]

    def _gathered(self, run: BlockRun) -> list[Gathered]:
        """Parameters of a block by group."""
        splits = [split for _, split in self.model.groups(self.plan)]
        counts = block_parameters(self.model, self.plan, run.kind)
        return [Gathered(float(n), split) for n, split in zip(counts, splits, strict=True)]

    def add_end(self, counts: Sequence[float], splits: Sequence[float]) -> None:
        """The exchange of gradients and parameters at the end of the step."""
        plan = self.plan
        stride, size = plan.data_group
        if plan.shard_group > 1 or size == 1:
            return
        kinds = [("reduce_scatter" if plan.zero_stage else "all_reduce", gradient_bytes(plan), "gradients")]
        kinds += [("all_gather", weight_bytes(plan), "parameters")] if plan.zero_stage else []
        for count, split in zip(counts, splits, strict=True):
            n_sharing = sharing_ranks(size, split)
            if count and n_sharing > 1:
                self.rows += [
                    CapturedComm(
                        kind,
                        "dp",
                        n_sharing,
                        round(stride * split),
                        wide * count,
                        _word(wide, plan),
                        "opt",
                        purpose=what,
                    )
                    for kind, wide, what in kinds
                ]


def op_of(kernel: Kernel, module: str, plan: ParallelPlan) -> CapturedOp:
    """A kernel as a row; a kernel that runs a share of the time has a share of its size.

    Raises:
        SpecError: its time does not follow from its sizes.
    """
    if kernel.law is not None:
        raise SpecError(
            f"{module}: the time of {kernel.name} does not follow from its sizes, so it cannot be written down"
        )
    whole = max(round(kernel.count), 1)
    share = kernel.count / whole
    fields: dict[str, Any] = {"kind": "memory", "shape": ()}
    launches = 1
    if kernel.kernel == "gemm":
        launches = math.gcd(max(round(kernel.n_launch), 1), round(kernel.batch))
        sizes = (kernel.batch / launches, kernel.m, kernel.n, kernel.k)
        fields = {"kind": "gemm", "shape": tuple(round(size) for size in sizes)}
    elif kernel.kernel == "attention":
        width = round(kernel.k)
        sizes = (round(kernel.batch), round(kernel.m), round(kernel.n), width, round(2 * kernel.k) - width)
        fields = {"kind": "attention", "shape": sizes, "causal": True}
    else:
        launches = max(round(kernel.n_launch), 1)
        fields["fusible"] = kernel.host_share < 1.0
    return CapturedOp(
        name=kernel.name,
        phase=kernel.phase,
        dtype=_dtype(kernel, plan),
        flops=kernel.flops * share / launches,
        n_bytes=kernel.hbm_bytes * share / launches,
        module=module,
        count=whole * launches,
        **fields,
    )


def _dtype(kernel: Kernel, plan: ParallelPlan) -> str:
    if kernel.dtype != "plan":
        return kernel.dtype if kernel.dtype in DTYPES else "bf16"
    return plan.dtype if plan.dtype in DTYPES else "fp8" if "8" in plan.dtype else "fp4"


def _comm(comm: Comm, module: str, plan: ParallelPlan) -> CapturedComm:
    whole = max(round(comm.count), 1)
    n_bytes = comm.n_bytes * comm.count / whole
    dtype = _word(plan.element_bytes, plan)
    return CapturedComm(comm.kind, comm.axis, comm.size, comm.stride, n_bytes, dtype, comm.phase, module, whole)


def _word(wide: float, plan: ParallelPlan) -> str:
    """Format of elements of `wide` bytes."""
    return {4.0: "fp32", 1.0: "fp8"}.get(wide, "fp16" if plan.dtype == "fp16" else "bf16")
