"""Fields of a plan that follow from a capture: degrees, batch, sharding, precision; a job may change those that stay free."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...errors import Problem, SpecError
from .program import COUNTED, RankProgram, exchange_of
from .rows import CapturedComm

# Fields that the rows of a capture were written under: another value would need another capture.
FIXED = ("tp", "cp", "ep", "micro_batch", "seq_len", "sharding", "zero_stage", "sequence_parallel", "recompute")
_PLAN_DTYPE = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "fp4": "nvfp4"}
_GRAD_DTYPES = ("fp32", "bf16", "fp16")


def plan_fields(program: RankProgram) -> dict[str, Any]:
    """Plan section of a job that runs the program as it was captured.

    Raises:
        SpecError: its degrees do not divide its ranks, or its samples its micro-batches.
    """
    tp, cp, pp = (program.degree(role) for role in ("tp", "cp", "pp"))
    _check_degrees(program, tp * cp * pp)
    dp = program.world // (tp * cp * pp)
    at_once = dp * program.micro_batches
    if program.samples_per_step % at_once:
        text = f"{program.samples_per_step}, but dp * micro_batches = {dp} * {program.micro_batches} must divide it"
        raise SpecError.of(Problem("samples_per_step", text), f"capture {program.name}")
    fields: dict[str, Any] = {
        "micro_batch": program.samples_per_step // at_once,
        "global_batch": program.samples_per_step,
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "ep": program.degree("ep"),
        "dtype": plan_dtype(program),
        **_sharding(program, dp),
    }
    if program.virtual_stages > 1:
        fields |= {"virtual_stages": program.virtual_stages, "schedule": "interleaved"}
    if program.tokens_per_sample:
        fields["seq_len"] = program.tokens_per_sample
    if is_sequence_parallel(program):
        fields["sequence_parallel"] = True
    return fields


def _check_degrees(program: RankProgram, product: int) -> None:
    if program.world % product:
        text = f"{program.world}, but tp * cp * pp = {product} of its axes does not divide it"
        raise SpecError.of(Problem("world", text), f"capture {program.name}")
    if program.n_stage % program.degree("pp"):
        text = f"pp = {program.degree('pp')}, but its classes have {program.n_stage} stages. Capture every stage."
        raise SpecError.of(Problem("axes", text), f"capture {program.name}")


def plan_dtype(program: RankProgram) -> str:
    """Format of most of its products, by FLOPs."""
    flops = dict[str, float]()
    for one in program.classes:
        for op, n in one.ops:
            if op.kind in COUNTED:
                dtype = _PLAN_DTYPE.get(op.dtype, "fp32")
                flops[dtype] = flops.get(dtype, 0.0) + op.flops * n
    return max(flops, key=lambda dtype: flops[dtype], default="bf16")


def data_rows(program: RankProgram) -> list[tuple[CapturedComm, str]]:
    """Collectives along data-parallel axes, and what each carries."""
    return [
        (comm, exchange_of(comm, "dp"))
        for one in program.classes
        for comm, _ in one.comms
        if program.role(comm.axis) == "dp"
    ]


def gathers_parameters(program: RankProgram) -> bool:
    """Whether parameters are sharded and gathered in every micro-batch."""
    return any(what == "parameters" and comm.phase == "F" for comm, what in data_rows(program))


def is_sequence_parallel(program: RankProgram) -> bool:
    """Whether activations are divided over tensor-parallel ranks between the products."""
    return any(
        program.role(comm.axis) == "tp" and comm.collective == "reduce_scatter"
        for one in program.classes
        for comm, _ in one.comms
    )


def _sharding(program: RankProgram, dp: int) -> dict[str, Any]:
    rows = data_rows(program)
    reduced = Counter(comm.dtype for comm, what in rows if what == "gradients" and comm.dtype in _GRAD_DTYPES)
    found: dict[str, Any] = {}
    if reduced:
        found["state_dtypes"] = {"grad_reduce": reduced.most_common(1)[0][0]}
    if gathers_parameters(program):
        widest = max(comm.ranks for comm, what in rows if what == "parameters")
        return found | ({"sharding": "fsdp"} if widest >= dp else {"sharding": "hsdp", "dp_shard": widest})
    if any(what == "gradients" and comm.collective == "reduce_scatter" for comm, what in rows):
        found["zero_stage"] = 1
    return found
