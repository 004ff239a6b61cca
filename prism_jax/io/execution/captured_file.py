"""Execution traces in the place of captures: what `predict` and `capture` read them by."""

from __future__ import annotations

from pathlib import Path

from ...errors import DataError, SpecError
from ...workload.captured.program import RankProgram
from ..capture.captured_files import CapturedFile
from .documents import ENDINGS, holds_execution_traces


def recognises(path: Path) -> bool:
    """A folder, archive or JSON file with an execution trace in it."""
    is_named = str(path).lower().endswith(ENDINGS)
    return (is_named or path.is_dir()) and holds_execution_traces(path)


def read(path: Path) -> RankProgram:
    """The program of the execution traces at `path`, with the kernel times of the profiles among them.

    Raises:
        DataError: as `read_traces`; the traces contradict each other.
    """
    from .program import read_traces  # commands that only look at the file pay for nothing

    try:
        return read_traces(path).program
    except SpecError as error:
        raise DataError(f"{path}: {error}") from None


CAPTURED_FILE = CapturedFile(
    "execution traces", "execution traces of PyTorch: a file, a tar archive or a folder", recognises, read
)
