"""Captures a program: the use case of `prism-jax capture`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..core.errors import DataError
from ..core.use_case import OUTPUT, Argument, Option, OptionGroup, use_case
from ..core.write_file import check_target
from ..workload.captured.check import check_program, plan_fields
from ..workload.captured.files import is_capture, read_capture, write_capture
from ..workload.captured.fusion import fused
from ..workload.captured.program import RankClass, RankProgram
from .front_end import STATED_BY, CaptureRequest, front_end_for
from .report import CaptureReport, ClassFacts

FUSION = "Fusion of kernels: eager, fused, inductor, megatron or xla."


def pairs_of(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Reads texts NAME=VALUE.

    Raises:
        DataError: one is not that, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise DataError(f"{option}: {text!r}, but it must be NAME=VALUE")
        if key in found:
            raise DataError(f"{option}: {key} is given twice. Keep one.")
        found[key] = value
    return found


def sizes_of(option: str, texts: Sequence[str]) -> dict[str, int]:
    """Reads texts NAME=SIZE.

    Raises:
        DataError: one is not that.
    """
    found = pairs_of(option, texts)
    for key, text in found.items():
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text) > 0):
            raise DataError(f"{option} {key}: {text!r}, but it must be a whole number of ranks")
    return {key: int(text) for key, text in found.items()}


Degree = Annotated[int | None, Option(metavar="N", least=1, help="Ranks along this axis of the mesh.")]


@dataclass(frozen=True)
class Mesh(OptionGroup):
    """The ranks of the job.

    Attributes:
        world: ranks of the job.
        axes: another dimension of the mesh; may be repeated, outermost first.
    """

    heading = "Mesh"
    world: Annotated[int | None, Option("--world --devices", "N", least=1)] = None
    tp: Degree = None
    pp: Degree = None
    dp: Degree = None
    fsdp: Degree = None
    ep: Degree = None
    cp: Degree = None
    axes: Annotated[Mapping[str, int] | None, Option("--axis", "NAME=SIZE", parse=sizes_of, is_repeated=True)] = None

    @property
    def sizes(self) -> dict[str, int]:
        """Axes of the mesh and their ranks."""
        degrees = {name: getattr(self, name) for name in ("tp", "pp", "dp", "fsdp", "ep", "cp")}
        return {name: size for name, size in degrees.items() if size is not None} | dict(self.axes or {})


@dataclass(frozen=True)
class StatedStep(OptionGroup):
    """Facts of a step that the source does not state.

    Attributes:
        micro_batches: micro-batches of a step per data-parallel rank.
        samples_per_step: samples of a step of the whole job.
        tokens_per_sample: tokens of a sample; 0 where it is no sequence.
        fusion: eager, fused, inductor, megatron or xla; what is merged.
    """

    micro_batches: Annotated[int | None, Option("--micro-batches", "N", least=1)] = None
    samples_per_step: Annotated[int | None, Option("--samples", "N", least=1)] = None
    tokens_per_sample: Annotated[int | None, Option("--tokens", "N", least=0)] = None
    fusion: Annotated[str | None, Option("--fusion", "POLICY", help=FUSION)] = None


@use_case()
def capture_step(
    source: Annotated[str, Argument(metavar="SOURCE")],
    *,
    output: Annotated[str | Path | None, Option("--output -o", "FILE", heading=OUTPUT)] = None,
    mesh: Mesh = Mesh(),
    step: StatedStep = StatedStep(),
    front_end: Annotated[str, Option("--front-end", "NAME")] = "",
    options: Annotated[
        Mapping[str, str] | None, Option("--option", "NAME=VALUE", parse=pairs_of, is_repeated=True)
    ] = None,
    name: str = "",
) -> CaptureReport:
    """Capture a training step from its code, on one machine without a GPU.

    Args:
        source: program to capture: a file and the name it defines (train.py:build), HLO text, execution traces, a job file, a
            capture.
        output: write the program to FILE (NAME.capture.gz).
        mesh: ranks of the job.
        step: facts of a step that the source does not state.
        front_end: reader of the source, where that is unclear.
        options: an option of the front end alone; may be repeated.
        name: name of the program; by default that of the source.

    Raises:
        DataError: the source cannot be captured, or the file cannot be written.
        SpecError: what was captured contradicts itself.

    Example:
        >>> capture_step("llama2_7b_fsdp_64").world
        64
    """
    if output is not None:
        check_target(output)
    request = CaptureRequest(
        source,
        mesh.world,
        mesh.sizes,
        micro_batches=step.micro_batches,
        samples_per_step=step.samples_per_step,
        tokens_per_sample=step.tokens_per_sample,
        fusion=step.fusion,
        name=name,
        options=dict(options or {}),
    )
    if is_capture(source):
        request.refuse_stated(tuple(STATED_BY), "It is captured already: what it holds stays.")
        program, told = read_capture(source), "capture"
    else:
        found = front_end_for(request, front_end)
        program, told = check_program(found.capture(request)), found.name
    plan_fields(program)  # what no job could run is refused
    report = _report(program, told, source, "" if output is None else str(output))
    if output is not None:
        write_capture(output, program)
    return report.made_of(program)


@use_case()
def capture_program(
    source: str,
    *,
    output: str | Path | None = None,
    mesh: Mesh = Mesh(),
    step: StatedStep = StatedStep(),
    front_end: str = "",
    options: Mapping[str, str] | None = None,
    name: str = "",
) -> RankProgram:
    """The captured program; arguments as those of `capture_step`.

    Example:
        >>> capture_program("llama2_7b_fsdp_64").axes
        {'dp': 64}
    """
    how = {"output": output, "mesh": mesh, "step": step, "front_end": front_end, "options": options, "name": name}
    return capture_step(source, **how).parts


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
        n_params=program.n_params(),
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
