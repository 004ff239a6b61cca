"""Formats of profiles: each says how its files are recognised, and gives their events, which are those of Kineto."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from ..core.errors import DataError
from ..trace.step_log import NOTHING_STATED, FileStart, Stated, TraceFormat
from ..trace.trace import JobShape, OpTable
from .rank_events import Source

Read: TypeAlias = tuple[OpTable, JobShape | None]

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


def _read(source: Callable[[], Source], files: Sequence[Path], stated: Stated = NOTHING_STATED) -> Read:
    """Operations of the profiles.

    Args:
        source: imports what gives the events of a file.
    """
    from .kineto import read_kineto  # ijson is needed for these files only

    if replace(stated, rank=None, kernels=False) != NOTHING_STATED:
        raise DataError(f"{files[0]}: a profile says its times and columns itself. Leave out all but --rank.")
    return read_kineto(files, stated.rank, stated.kernels, source())


def _kineto() -> Source:
    from .file import kineto_events

    return kineto_events


def _xplane() -> Source:
    from .xplane import xplane_events

    return xplane_events


def _nsight() -> Source:
    from .nsight import nsight_events

    return nsight_events


def _nsys_jax() -> Source:
    from .nsys_jax import nsys_jax_events

    return nsys_jax_events


def _flight_recorder() -> Source:
    from .flight_recorder import flight_recorder_events

    return flight_recorder_events


def _of_folder(files: Sequence[Path]) -> Sequence[Path]:
    """Profiles of all ranks; those that PyTorch has named, if there are any."""
    found = [file for file in files if file.name.lower().endswith(ENDINGS)]
    return [file for file in found if ".pt.trace.json" in file.name] or found


def profile_format(
    name: str,
    about: str,
    recognises: Callable[[FileStart], bool],
    source: Callable[[], Source],
    of_folder: Callable[[str], bool],
) -> TraceFormat:
    """A format of profiles.

    Args:
        source: imports and returns what gives the events of a file (`RankEvents`).
        of_folder: whether a file of a folder is one of them, by its name in lower case.
    """
    read = partial(_read, source)
    return TraceFormat(
        name, about, recognises, read, lambda files: [one for one in files if of_folder(one.name.lower())], read
    )


def _is_xplane(begins: FileStart) -> bool:
    return begins.name.endswith(".xplane.pb") or (
        begins.start[:1] == b"\n" and bool(_PLANE.search(begins.start[:SEARCHED]))
    )


def _is_nsight(begins: FileStart) -> bool:
    """Whether the file is a database of SQLite.

    Raises:
        DataError: the recording of Nsight Systems itself.
    """
    if begins.name.endswith((".nsys-rep", ".qdrep", ".qdstrm")):
        raise DataError(
            f"{begins.path}: a recording of Nsight Systems in its own form, which only nsys reads. Export it: "
            f"nsys export --type sqlite {shlex.quote(begins.path.name)}"
        )
    return begins.start.startswith(SQLITE)


def _is_nsys_jax(begins: FileStart) -> bool:
    if not begins.start.startswith(ZIP):
        return False
    from .nsys_jax import is_nsys_jax

    return is_nsys_jax(begins.path)


def _is_flight_recorder(begins: FileStart) -> bool:
    """Whether the file is JSON of NCCL's flight recorder.

    Raises:
        DataError: its default form, a pickle.
    """
    if _PICKLE.match(begins.start) and (_DUMPED.search(begins.start) or "nccl_trace" in begins.name):
        raise DataError(
            f"{begins.path}: NCCL's flight recorder as a pickle, which is never loaded: it could run any program. {AS_JSON}"
        )
    return begins.text.startswith("{") and bool(_ENTRY.search(begins.text)) and "traceEvents" not in begins.text


SQLITE, ZIP = b"SQLite format 3\0", b"PK\x03\x04"
SEARCHED = 4096  # bytes in which a plane of XPlane is looked for
_PLANE = re.compile(rb"\x12[\x04-\x40]/(host|device):")
_PICKLE, _DUMPED = re.compile(rb"\x80[\x02-\x05]"), re.compile(rb"pg_config|profiling_name|nccl_version")
_ENTRY = re.compile(r"\"(profiling_name|collective_seq_id|pg_status|nccl_version)\"\s*:")
AS_JSON = (
    "Write it as JSON: on the rank itself with torch._C._distributed_c10d._dump_nccl_trace_json(), or from a dump that you wrote "
    "yourself with python -c 'import json, pickle, sys; json.dump(pickle.load(sys.stdin.buffer), sys.stdout)' "
    "< DUMP > DUMP.json"
)
_read_kineto = partial(_read, _kineto)
KINETO = TraceFormat("Kineto", "Kineto (PyTorch profiler) JSON", _is_kineto, _read_kineto, _of_folder, _read_kineto)
FLIGHT_RECORDER = profile_format(
    "NCCL flight recorder",
    "NCCL flight recorder JSON",
    _is_flight_recorder,
    _flight_recorder,
    lambda name: "nccl_trace" in name and name.endswith(ENDINGS),
)
NSYS_JAX = profile_format(
    "nsys-jax",
    "nsys-jax archives (zip)",
    _is_nsys_jax,
    _nsys_jax,
    lambda name: name.endswith(".zip"),
)
NSIGHT = profile_format(
    "Nsight Systems",
    "Nsight Systems exports (SQLite)",
    _is_nsight,
    _nsight,
    lambda name: name.endswith((".sqlite", ".nsys-rep")),
)
XPLANE = profile_format(
    "XPlane",
    "XPlane (JAX profiler)",
    _is_xplane,
    _xplane,
    lambda name: name.endswith(".xplane.pb"),
)
PROFILES = (KINETO, FLIGHT_RECORDER, NSYS_JAX, NSIGHT, XPLANE)
