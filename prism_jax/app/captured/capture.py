"""Capturing a program; what `prism-jax capture` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...capture.front_end import STATED_BY, CaptureRequest
from ...capture.front_ends import front_end_for
from ...io.capture.read_capture import is_capture, read_capture
from ...io.capture.write_capture import write_capture
from ...io.write import check_target
from ...report.types.capture import CaptureReport, ClassFacts
from ...workload.captured.check import check_program
from ...workload.captured.fusion import fused
from ...workload.captured.model import CapturedModel
from ...workload.captured.program import RankClass, RankProgram


@dataclass(frozen=True)
class CaptureRun:
    """A capture with its report."""

    report: CaptureReport
    program: RankProgram


def run_capture(
    source: str,
    *,
    output: str | Path | None = None,
    front_end: str = "",
    world: int | None = None,
    axes: Mapping[str, int] | None = None,
    micro_batches: int | None = None,
    samples_per_step: int | None = None,
    tokens_per_sample: int | None = None,
    fusion: str | None = None,
    name: str = "",
    options: Mapping[str, str] | None = None,
) -> CaptureRun:
    """Captures a program from its code, or reads one that was captured.

    Args:
        source: what a front end reads (train.py:build), or a capture.
        output: file to write; by convention NAME.capture.gz.
        front_end: name of one of `FRONT_ENDS`; empty: the first that recognises the source.
        world, axes, micro_batches, samples_per_step, tokens_per_sample, fusion, name, options: as in `CaptureRequest`.

    Raises:
        DataError: the source cannot be captured, or the file cannot be written.
        SpecError: what was captured contradicts itself.

    Example:
        >>> run_capture("llama2_7b_fsdp_64").report.world
        64
    """
    if output is not None:
        check_target(output)
    request = CaptureRequest(
        source,
        world,
        dict(axes or {}),
        micro_batches,
        samples_per_step,
        tokens_per_sample,
        fusion,
        name,
        dict(options or {}),
    )
    if is_capture(source):
        request.refuse_stated(tuple(STATED_BY), "It is captured already: what it holds stays.")
        program, told = read_capture(source), "capture"
    else:
        found = front_end_for(request, front_end)
        program, told = check_program(found.capture(request)), found.name
    report = _report(program, told, source, "" if output is None else str(output))
    if output is not None:
        write_capture(output, program)
    return CaptureRun(report, program)


def capture_program(source: str, **options: Any) -> RankProgram:
    """The captured program; arguments as those of `run_capture`.

    Example:
        >>> capture_program("llama2_7b_fsdp_64").axes
        {'dp': 64}
    """
    return run_capture(source, **options).program


def _report(program: RankProgram, front_end: str, source: str, file: str) -> CaptureReport:
    return CaptureReport(
        name=program.name,
        front_end=front_end,
        source=source,
        file=file,
        world=program.world,
        axes=dict(program.axes),
        micro_batches=program.micro_batches,
        samples_per_step=program.samples_per_step,
        tokens_per_sample=program.tokens_per_sample,
        n_params=CapturedModel(program).n_params(),
        fusion=program.fusion,
        versions=dict(program.versions),
        classes=tuple(_class(one, program.fusion) for one in program.classes),
        assumptions=program.assumptions,
    )


def _class(one: RankClass, fusion: str) -> ClassFacts:
    said: dict[str, float] = {}
    for comm, n in one.comms:
        said[comm.axis] = said.get(comm.axis, 0.0) + comm.n_bytes * n
    kernels = sum(n for op, n in fused(one, fusion).ops if op.kind != "none" and op.phase != "opt")
    return ClassFacts(
        name=one.name,
        n_ranks=one.n_ranks,
        stage=one.stage,
        rows=len(one.rows),
        kernels=kernels,
        n_parameters=one.n_parameters,
        flops_forward=one.flops("F"),
        flops_backward=one.flops("B", "W"),
        memory_bytes=sum(op.n_bytes * n for op, n in one.ops if op.phase != "opt"),
        axis_bytes=said,
    )
