"""Front end of prism-jax's own jobs: the program that a job file describes, for tests and for comparing captures with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..io.job.examples import example_files
from ..io.job.load_job import load_job
from ..workload.captured.program import RankProgram
from .from_job import program_of_job
from .front_end import CaptureRequest, FrontEnd

_ENDINGS = (".yaml", ".yml", ".toml")
_OF_THE_JOB = ("world", "axes", "micro_batches", "samples_per_step", "tokens_per_sample")


def recognises(request: CaptureRequest) -> bool:
    """A job file, or the name of a shipped job."""
    return Path(request.source).suffix in _ENDINGS or request.source in example_files()


def capture(request: CaptureRequest) -> RankProgram:
    """The program of a job; degrees and batch are those of the job.

    Raises:
        DataError: other ones are asked for.
    """
    request.check_options({})
    request.refuse_stated(_OF_THE_JOB, "Degrees and batch are those of the job: change its plan.")
    program = program_of_job(load_job(request.source))
    fusion = program.fusion if request.fusion is None else request.fusion
    return replace(program, name=request.name or program.name, fusion=fusion)


FRONT_END = FrontEnd("spec", "a job file of prism-jax, or the name of a shipped job", recognises, capture)
