"""Profiles of the PyTorch profiler as a format: one JSON file per rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import DataError
from ..trace.step_log import NOTHING_STATED, FileStart, Stated, TraceFormat
from ..trace.trace import JobShape, OpTable

ENDINGS = (".json", ".json.gz")
_JSON = re.compile(r"\{\s*(\"|\}|$)|\[\s*([{\]\"]|$)")
_EXECUTION_TRACE = re.compile(r"\"schema\"\s*:\s*\"[0-9.]+(-chakra[0-9.]*)?\"")
_SEARCHED = 4096  # characters in which the schema of an execution trace is looked for


def _is_kineto(begins: FileStart) -> bool:
    """Whether the file is JSON.

    Raises:
        DataError: an execution trace, or named `.json` without being JSON.
    """
    path, text = begins.path, begins.text
    if not _JSON.match(text):
        if begins.name.endswith(".json"):
            raise DataError(f"{path}: not a Kineto trace, which is one JSON object: it begins with {text[:20]!r}")
        return False
    if _EXECUTION_TRACE.search(text[:_SEARCHED]) and "traceEvents" not in text:
        raise DataError(
            f"{path}: a PyTorch or Chakra execution trace, which holds no times. `trace info` and `predict` read it; for all "
            "else record with the profiler (Kineto)."
        )
    return True


def _read(files: Sequence[Path], stated: Stated = NOTHING_STATED) -> tuple[OpTable, JobShape | None]:
    from .kineto import read_kineto  # ijson is needed for these files only

    if replace(stated, rank=None, kernels=False) != NOTHING_STATED:
        raise DataError(f"{files[0]}: a profile says its times and columns itself. Leave out all but --rank.")
    return read_kineto(files, stated.rank, stated.kernels)


def _of_folder(files: Sequence[Path]) -> Sequence[Path]:
    """Profiles of all ranks; those that PyTorch has named, if there are any."""
    found = [file for file in files if file.name.lower().endswith(ENDINGS)]
    return [file for file in found if ".pt.trace.json" in file.name] or found


KINETO = TraceFormat("Kineto", "Kineto (PyTorch profiler) JSON", _is_kineto, _read, _of_folder, _read)
