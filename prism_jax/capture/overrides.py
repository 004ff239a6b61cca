"""What a request says of a program, in the place of what the program says of itself."""

from __future__ import annotations

from dataclasses import replace

from ..workload.captured import RankProgram, check_program
from .front_end import CaptureRequest


def overridden(program: RankProgram, request: CaptureRequest) -> RankProgram:
    """The program with the name, fusion policy and micro-batches of a request.

    Raises:
        SpecError: they do not fit it.
    """
    changed = {"name": request.name, "fusion": request.fusion, "micro_batches": request.micro_batches}
    given = {name: value for name, value in changed.items() if value}
    return check_program(replace(program, **given)) if given else program
