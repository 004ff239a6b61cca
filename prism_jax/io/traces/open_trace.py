"""`open_trace`: a recorded job in any of the known formats."""

from __future__ import annotations

import glob
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ...errors import DataError
from ...recorded.trace.assemble import assemble
from ...recorded.trace.op_table import JobShape, OpTable
from ...recorded.trace.step_log import StepLog
from ...recorded.trace.trace import Trace
from ..job.examples import example_traces
from .detect import detect
from .format import Recording, TraceFormat
from .formats import TRACE_FORMATS
from .kineto.format import KINETO
from .logs.scalars.names import UNITS
from .meta import find_meta, read_meta

MAX_FILES = 100_000  # of a folder or a pattern


def open_trace(path: str | Path, meta: str | Path | None = None, unit: str | None = None) -> Trace | StepLog:
    """The recorded job at `path`.

    Args:
        path: a file of any known format (`TRACE_FORMATS`); for Kineto also the folder of the files of all ranks, or a pattern
            such as "run/rank*.json"; or the name of a shipped trace. The content decides the format.
        meta: file with the degrees of the job (see `meta.py`); by default the one beside the trace, then what the trace itself
            says, then the highest ranks in it.
        unit: of step times whose name does not say it: s, ms, us or ns.

    Returns:
        The ops of all workers and steps; the step times alone where the format holds no ops (logs).

    Raises:
        DataError: cannot be read, of no known format, damaged, or without a complete step; names the place and the remedy.
        ConfigError: the metadata is wrong.
    """
    job = read_meta(meta) if meta is not None else None
    paths = files_of(path)
    known = _one_format(paths)
    found = known.read(paths) if unit is None else _read_in_unit(known, paths, unit)
    if isinstance(found, StepLog):
        return found if job is None else replace(found, name=job.name)
    table, inside = (found, None) if isinstance(found, OpTable) else found
    named = Path(path) if Path(path).is_dir() else paths[0]
    if inside is not None and known.of_folder is not None:  # called like the folder
        folder = named if named.is_dir() else named.parent
        inside = replace(inside, name=folder.resolve().name or inside.name)
    return _assembled(table, named, job, inside)


def _read_in_unit(known: TraceFormat, paths: list[Path], unit: str) -> Recording:
    if unit not in UNITS:
        raise DataError(f"--unit {unit}: not a unit of time. Name s, ms, us or ns.")
    if known.read_in_unit is None:
        raise DataError(
            f"{paths[0]}: files of this format ({known.name}) say the unit of their times. Leave out --unit."
        )
    return known.read_in_unit(paths, UNITS[unit])


def _one_format(paths: list[Path]) -> TraceFormat:
    """The format of the files of a job.

    Raises:
        DataError: of several files one has another format, or one of which a job has one file.
    """
    formats = [detect(file) for file in paths]
    if len(paths) == 1:
        return formats[0]
    several = next((known for known in formats if known.of_folder is not None), KINETO)
    for file, known in zip(paths, formats, strict=True):
        if known is not several:
            raise DataError(f"{file}: not a {several.name} trace, and only those may be several. Name one file.")
    return several


def _named(path: str | Path) -> str | Path:
    """The folder of a shipped trace, if `path` is its name and nothing of that name is at hand."""
    shipped = example_traces().get(str(path))
    return path if shipped is None or Path(path).exists() else shipped


def _assembled(table: OpTable, beside: Path, job: JobShape | None, inside: JobShape | None) -> Trace:
    """The trace, with the degrees that were given, lie beside it, are in it, or follow from its ranks."""
    note = ""
    if job is None and (file := find_meta(beside)) is not None:
        job, note = read_meta(file), f"degrees from {file}"
    if job is None and inside is not None:
        job = inside
    if job is None:
        job = _highest(table, beside)
        note = (
            f"no metadata: dp {job.dp}, pp {job.pp}, tp {job.tp} are the highest ranks in the trace. "
            "State the degrees with --meta FILE if the job had more."
        )
    if job.pp > len(table):
        raise DataError(
            f"{table.source}: {len(table):,} rows, but pp {job.pp}. Record a worker of every stage, or correct the degrees in "
            "the job's metadata."
        )
    return assemble(replace(table, notes=(*table.notes, note)) if note else table, job)


def _highest(table: OpTable, path: Path) -> JobShape:
    degrees = {name: int(getattr(table, name).max()) + 1 for name in ("dp", "pp", "tp")}
    return JobShape(path.name.split(".")[0], **degrees, virtual_stages=max(int(table.chunk.max()) + 1, 1))


def files_of(path: str | Path) -> list[Path]:
    """The file, the traces of the folder, or all that match the pattern.

    Raises:
        DataError: not a usable name, nothing matches, or too many files.
    """
    path = _named(path)
    file = Path(path)
    try:
        if file.is_dir():
            return _in_folder(file)
        if file.exists() or not glob.has_magic(str(path)):
            return [file]
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)  # the whole text repeats the name
        raise DataError(f"{str(path)[:200]!r}: not a usable file name: {reason}") from None
    found = [Path(name) for name in islice(glob.iglob(str(path)), MAX_FILES + 1)]
    if not found:
        raise DataError(f"{path}: no file matches this pattern")
    return _few(sorted(found), path)


def _in_folder(folder: Path) -> list[Path]:
    try:
        files = sorted(file for file in islice(folder.iterdir(), MAX_FILES + 1) if not file.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read: {error.strerror or error}") from None
    for known in reversed(tuple(TRACE_FORMATS)):
        if known.of_folder is not None and (found := known.of_folder(files)):
            return _few(list(found), folder)
    there = f"It holds {', '.join(file.name for file in files[:3])}: name one." if files else "It is empty."
    raise DataError(f"{folder}: a folder without Kineto traces (*.json, *.json.gz). {there}")


def _few(found: list[Path], named: str | Path) -> list[Path]:
    if len(found) > MAX_FILES:
        raise DataError(f"{named}: more than {MAX_FILES:,} files")
    return found
