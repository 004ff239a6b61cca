"""Reads execution traces of PyTorch in the place of captures: for `predict`, and as a front end of `capture`."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import DataError, SpecError
from ...workload.captured.files import CapturedFile
from ...workload.captured.program import RankProgram
from ..front_end import CaptureRequest, FrontEnd, overridden
from .trace import ENDINGS, holds_execution_traces


def is_execution_trace(path: Path) -> bool:
    """A folder, archive or JSON file with an execution trace in it."""
    is_named = str(path).lower().endswith(ENDINGS)
    return (is_named or path.is_dir()) and holds_execution_traces(path)


def read(path: Path) -> RankProgram:
    """The program of the execution traces at `path`, with the kernel times of the profiles among them.

    Raises:
        DataError: as `read_traces`; the traces contradict each other.
    """
    from .program import read_traces  # commands that only look at a file pay for nothing

    try:
        return read_traces(path).program
    except SpecError as error:
        raise DataError(f"{path}: {error}") from None


CAPTURED_FILE = CapturedFile(
    "execution traces", "execution traces of PyTorch: a file, a tar archive or a folder", is_execution_trace, read
)


OPTIONS = {"kernels": "a Kineto profile of the same run, an archive or a folder of them: their kernel times are kept"}


def recognises(request: CaptureRequest) -> bool:
    """A file, an archive or a folder with an execution trace in it."""
    return is_execution_trace(Path(request.source))


def capture(request: CaptureRequest) -> RankProgram:
    """Returns the program of the recorded job; values that the request states replace those of the trace.

    Raises:
        DataError: the traces cannot be read.
        SpecError: they contradict each other.
    """
    request.check_options(OPTIONS)
    request.refuse_stated(("world", "axes"), "Ranks and groups are those that were recorded.")
    from .program import read_traces

    kernels = request.options.get("kernels", "")
    return overridden(read_traces(request.source, (kernels,) if kernels else ()).program, request)


FRONT_END = FrontEnd("et", "execution traces of PyTorch: a file, a tar archive or a folder", recognises, capture)
