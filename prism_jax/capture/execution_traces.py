"""Front end of execution traces: what PyTorch recorded of a job that ran, one file per rank, and profiles of the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..io.execution.captured_file import recognises as is_execution_trace
from ..io.execution.program import read_traces
from ..workload.captured.program import RankProgram
from .front_end import CaptureRequest, FrontEnd

OPTIONS = {"kernels": "a Kineto profile of the same run, an archive or a folder of them: their kernel times are kept"}


def recognises(request: CaptureRequest) -> bool:
    """A file, an archive or a folder with an execution trace in it."""
    return is_execution_trace(Path(request.source))


def capture(request: CaptureRequest) -> RankProgram:
    """The program of the recorded job; what the request states stands in the place of what was read off.

    Raises:
        DataError: the traces cannot be read.
        SpecError: they contradict each other.
    """
    request.check_options(OPTIONS)
    request.refuse_stated(("world", "axes"), "Ranks and groups are those that were recorded.")
    kernels = request.options.get("kernels", "")
    program = read_traces(request.source, (kernels,) if kernels else ()).program
    given = {
        name: getattr(request, name)
        for name in ("micro_batches", "samples_per_step", "tokens_per_sample", "fusion", "name")
    }
    return replace(program, **{name: value for name, value in given.items() if value})


FRONT_END = FrontEnd("et", "execution traces of PyTorch: a file, a tar archive or a folder", recognises, capture)
