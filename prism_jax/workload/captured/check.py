"""Degrees, batch, sharding and precision of a plan that follow from a captured program, and the program's mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ...core.bounds import MOST_DEVICES, MOST_LAYERS, MOST_SAMPLES, MOST_TOKENS
from ...core.errors import Problem, SpecError
from .program import (
    AMOUNTS,
    COUNTED,
    FUSIONS,
    MOST,
    MOST_COUNT,
    ROLES,
    CapturedComm,
    CapturedOp,
    RankClass,
    RankProgram,
    exchange_of,
    whole_number,
)

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
        **({"etp": _expert_tp(program, tp)} if program.degree("ep") > 1 and tp > 1 else {}),
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


def _expert_tp(program: RankProgram, tp: int) -> int:
    """Ranks that an expert is split over: those of the axis of that role; without one as everything else."""
    is_named = any(program.role(axis) == "etp" for axis in program.axes)
    return program.degree("etp") if is_named else tp


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
    """Collectives along data-parallel axes, with the data that each carries."""
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
        cp = program.degree("cp")
        groups = {"sharding": "hsdp", "dp_shard": max(widest // cp, 1)}
        return found | ({"sharding": "fsdp"} if widest >= dp * cp else groups)
    if any(what == "gradients" and comm.collective == "reduce_scatter" for comm, what in rows):
        found["zero_stage"] = 1
    return found


MOST_CLASSES = 4096
MOST_ROWS = 1_000_000  # of all classes
MOST_RUN = 20_000_000  # of a class, repeats counted
MOST_AXES = 16


def check_program(program: RankProgram) -> RankProgram:
    """Returns the program itself, or refuses it with all of its contradictions.

    Raises:
        SpecError: the first of its `problems`.
    """
    for problem in problems(program):
        raise SpecError.of(problem, f"capture {program.name}")
    return program


def problems(program: RankProgram) -> Iterator[Problem]:
    """Yields all contradictions of a program; the field says where: `classes[0].rows[12].wait`."""
    yield from _header(program)
    if not program.classes:
        yield Problem("classes", "none, but a program has at least one class of ranks")
    names = [one.name for one in program.classes]
    for index, one in enumerate(program.classes):
        if names.index(one.name) != index:
            yield Problem(f"classes[{index}].name", f"{one.name!r} is there twice. Give each class a name of its own.")
        yield from _of_class(program, index, one)
    yield from _stages(program)


def _header(program: RankProgram) -> Iterator[Problem]:
    yield from whole_number("world", program.world, 1, MOST_DEVICES)
    yield from whole_number("micro_batches", program.micro_batches, 1, MOST_SAMPLES)
    yield from whole_number("samples_per_step", program.samples_per_step, 1, MOST_SAMPLES)
    yield from whole_number("tokens_per_sample", program.tokens_per_sample, 0, MOST_TOKENS)
    yield from _number("n_parameters", program.n_parameters)
    if program.fusion not in FUSIONS:
        yield Problem("fusion", f"{program.fusion[:60]!r}, but it must be one of {', '.join(FUSIONS)}")
    if len(program.axes) > MOST_AXES:
        yield Problem("axes", f"{len(program.axes)} dimensions, but a mesh has at most {MOST_AXES}")
    for axis, size in program.axes.items():
        yield from whole_number(f"axes.{axis}", size, 1, MOST_DEVICES)
    for axis, role in program.roles.items():
        if axis not in program.axes:
            yield Problem(f"roles.{axis}", f"no dimension of the mesh: it has {', '.join(program.axes) or 'none'}")
        if role not in ROLES:
            yield Problem(f"roles.{axis}", f"{role[:60]!r}, but it must be one of {', '.join(ROLES)}")


def _of_class(program: RankProgram, index: int, one: RankClass) -> Iterator[Problem]:
    place = f"classes[{index}]"
    yield from whole_number(f"{place}.n_ranks", one.n_ranks, 1, MOST_DEVICES)
    yield from whole_number(f"{place}.stage", one.stage, 0, MOST_LAYERS)
    for name in AMOUNTS:
        yield from _number(f"{place}.{name}", getattr(one, name))
    yield from _repeats(place, one)
    for number, row in enumerate(one.rows):
        if isinstance(row, CapturedComm):
            yield from _comm(f"{place}.rows[{number}]", row, program)
            yield from _wait(f"{place}.rows[{number}].wait", row, number, one)
        elif row.chain:
            yield from _chain(f"{place}.rows[{number}].chain", row, number, one)


def _comm(place: str, comm: CapturedComm, program: RankProgram) -> Iterator[Problem]:
    if comm.axis not in program.axes:
        known = ", ".join(program.axes) or "none"
        yield Problem(f"{place}.axis", f"{comm.axis[:60]!r}, but the mesh has {known}. Add the group to `axes`.")
    elif not program.role(comm.axis):
        text = f"{comm.axis!r}: which axis of a plan is it? Say so in `roles`: one of {', '.join(ROLES)}."
        yield Problem(f"{place}.axis", text)
    if comm.stride * (comm.ranks - 1) >= max(program.world, 1):
        text = f"{comm.ranks} ranks {comm.stride} apart, but the job has {program.world}"
        yield Problem(f"{place}.ranks", text)


def _wait(field: str, comm: CapturedComm, number: int, one: RankClass) -> Iterator[Problem]:
    if comm.wait is None:
        return
    if comm.wait >= len(one.rows):
        yield Problem(field, f"row {comm.wait}, but the class has {len(one.rows)} rows")
    elif not comm.asynchronous:
        yield Problem(
            field, f"row {comm.wait}, but the collective is not asynchronous: whatever comes next waits for it"
        )
    elif comm.wait <= number and not any(repeat.start <= comm.wait and number < repeat.stop for repeat in one.repeats):
        text = f"row {comm.wait}, which is not behind row {number} and in no repeat with it: nothing could ever wait for it"
        yield Problem(field, text)


def _chain(field: str, op: CapturedOp, number: int, one: RankClass) -> Iterator[Problem]:
    end = number + op.chain
    if end >= len(one.rows):
        yield Problem(field, f"{op.chain} rows further on, but the class has {len(one.rows)} rows")
        return
    last = one.rows[end]
    if not isinstance(last, CapturedOp) or last.chain or last.phase != op.phase:
        yield Problem(field, f"row {end}, but a chain ends with an operation of its own pass that leads no further")


def _repeats(place: str, one: RankClass) -> Iterator[Problem]:
    end, total = 0, len(one.rows)
    for number, repeat in enumerate(one.repeats):
        field = f"{place}.repeats[{number}]"
        start, stop, times = repeat.start, repeat.stop, repeat.times
        if not 0 <= start < stop <= len(one.rows):
            yield Problem(field, f"rows {start} to {stop}, but the class has {len(one.rows)}")
            return
        if start < end:
            yield Problem(field, f"starts at row {start}, inside the repeat before it. They must not overlap.")
            return
        yield from whole_number(f"{field}.times", times, 1, MOST_COUNT)
        end, total = stop, total + (stop - start) * (max(times, 1) - 1)
    if total > MOST_RUN:
        yield Problem(f"{place}.repeats", f"{total:,} rows with all repeats, but at most {MOST_RUN:,} are simulated")


def _stages(program: RankProgram) -> Iterator[Problem]:
    stages = {one.stage for one in program.classes}
    if missing := sorted(set(range(min(program.n_stage, MOST_LAYERS))) - stages)[:1]:
        yield Problem("classes", f"no class of stage {missing[0]}, but there is one of stage {max(stages)}")
    total = sum(one.n_ranks for one in program.classes)
    if program.classes and total != program.world * program.virtual_stages:
        chunks = f" with {program.virtual_stages} parts of the model each" if program.virtual_stages > 1 else ""
        yield Problem("world", f"{program.world}{chunks}, but its classes have {total} ranks together")


def _number(field: str, value: float | None) -> Iterator[Problem]:
    if value is not None and not 0.0 <= value <= MOST:
        yield Problem(field, f"{value:g}, but it must be a number from 0 to {MOST:g}")
