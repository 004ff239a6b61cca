"""Opens a recorded job in any of the known formats: ops (`TRACE_FORMATS`), or step times alone (`STEP_LOGS`).

The format follows from the content of a file, and from its ending only where the content leaves it open; step logs are asked in
turn, the last one first. A small YAML file next to a trace states the degrees of the recorded job.

Fields: name (or trial_name), dp, pp, tp, sp (or dp_size, pp_size, tp_size, dsp_size), virtual_stages (or vpp_size), each 1 if
absent; world_size, which must be their product without virtual_stages; run_id, which is not used.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ...core.errors import ConfigError, DataError, Mark, Mistake
from ...core.read_file import check_input, read_text
from ...core.registry import Registry, did_you_mean
from ...profiles.format import KINETO, PROFILES
from ...tables.document import Document, short
from ...tables.streams import PARQUET, SAMPLE_BYTES, ZSTD, example_traces, head, refuse_binary, refuse_packed
from ...tables.yaml_toml import read_value, read_yaml
from ...trace.assemble import assemble
from ...trace.step_log import NOTHING_STATED, FileStart, Recording, Stated, StepLog, TraceFormat
from ...trace.trace import MAX_RANKS, JobShape, OpTable, Trace
from .event_file import EVENT_FILE
from .mllog import MLLOG
from .pattern_log import read_by_pattern
from .plain_table import PLAIN_CSV, PLAIN_PARQUET, STRAGGLER_PARQUET
from .quantities import UNITS
from .scalar_files import JSON_LINES, STEP_TABLE, TRAINER_STATE
from .text_logs import TEXT_LOG

OF_SCALARS = (STEP_TABLE, JSON_LINES, TRAINER_STATE, EVENT_FILE)
STEP_LOGS = (TEXT_LOG, MLLOG, *OF_SCALARS)  # any text that nobody else claims is a text log


SHIPPED = (
    TEXT_LOG,
    MLLOG,
    PLAIN_CSV,
    *PROFILES,
    *OF_SCALARS,
    PLAIN_PARQUET,
    STRAGGLER_PARQUET,
)  # any text that nobody else claims is a log
TRACE_FORMATS: Registry[TraceFormat] = Registry("trace format", lambda: SHIPPED, error=DataError)


def added_formats() -> Iterator[TraceFormat]:
    """The formats of callers, the one added last first: they are asked before those of the package."""
    return reversed([known for known in TRACE_FORMATS if known not in SHIPPED])


def what_is_read() -> str:
    """All formats in words, for messages."""
    words = [known.about for known in reversed(tuple(TRACE_FORMATS))]
    return f"{', '.join(words[:-1])} and {words[-1]}"


_CHAKRA_ENDINGS = (".et", ".chakra")


def detect(path: Path) -> TraceFormat:
    """The format of a regular file; formats of callers come before those of the package.

    Raises:
        DataError: cannot be read, empty, packed in a way that is not read, or of no known format.
    """
    check_input(path)
    begins = FileStart(path, head(path))
    if not begins.start:
        raise DataError(f"{path}: the file is empty. Record the trace again.")
    for known in added_formats():
        if known.recognises(begins):
            return known
    for known in reversed(PROFILES[1:]):  # files that are not text, before those are refused
        if known.recognises(begins):
            return known
    _refuse(begins)
    return next(known for known in reversed(SHIPPED) if known.recognises(begins))  # the last takes any text


def _refuse(begins: FileStart) -> None:
    """Files that no reader of the package reads."""
    path, start = begins.path, begins.start
    refuse_packed(path, start, {ZSTD: "zstd"})
    if start[257:262] == b"ustar":
        raise DataError(f"{path}: a tar archive. Unpack it, and name a file or the folder in it.")
    if begins.name.endswith(_CHAKRA_ENDINGS):
        raise DataError(
            f"{path}: a Chakra execution trace. Those are not read; {what_is_read()} are. Record with the profiler."
        )
    if not start.startswith(PARQUET) and not EVENT_FILE.recognises(begins):
        refuse_binary(path, start[:SAMPLE_BYTES], what_is_read())


MAX_BYTES = 2**16
FIELDS = {
    "trial_name": "name",
    "dp_size": "dp",
    "dsp_size": "sp",
    "pp_size": "pp",
    "tp_size": "tp",
    "vpp_size": "virtual_stages",
    **{name: name for name in ("name", "dp", "sp", "pp", "tp", "virtual_stages", "world_size", "run_id")},
}
DEGREES = ("dp", "pp", "tp", "sp", "virtual_stages")
ENDINGS = (".gz", ".csv", ".parquet", ".json", ".trace", ".pt")


def read_meta(path: str | Path) -> JobShape:
    """The job of a metadata file.

    Raises:
        DataError: there is no such file, or it cannot be read.
        ConfigError: not YAML, an unknown field, a degree that is not a whole number from 1, a world size that is not the product
            of the degrees; one line per mistake.
    """
    document = _document(Path(path))
    mistakes: list[Mistake] = []
    values = _values(document, mistakes)
    shape = {field: _degree(values[field], document, mistakes) for field in DEGREES if field in values}
    name = values.get("name", ("", Path(path).stem))[1]
    if not isinstance(name, str) or not name.isprintable():
        mistakes.append(document.mistake((values["name"][0],), f"{short(name)}, but it must be text"))
    if not mistakes:
        job = JobShape(str(name), **shape)
        _check_world(job, values, document, mistakes)
        if not mistakes:
            return job
    raise ConfigError(mistakes)


def find_meta(trace: Path) -> Path | None:
    """Metadata file next to `trace` (a file or a folder), None if there is none.

    `trace-A.parquet` has `meta-A.yaml`; any trace may have `<its name>.meta.yaml`; a folder has one `meta.yaml` or `meta-*.yaml`
    for all its traces, except that `meta-B.yaml` is not for `trace-A`.

    Raises:
        ConfigError: several could be meant.
    """
    folder, stem = (trace, trace.name) if trace.is_dir() else (trace.parent, _stem(trace))
    label = stem.removeprefix("trace-")
    own = [f"meta-{label}.yaml"] if label != stem else []
    for name in (*own, f"{stem}.meta.yaml", "meta.yaml"):
        if os.path.isfile(folder / name):  # False for names that are too long
            return folder / name
    if own:
        return None
    try:
        found = sorted(file for file in folder.glob("meta-*.yaml") if file.is_file())
    except OSError:
        return None
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:5])
        raise ConfigError.in_file(trace, f"which metadata is meant, {names}? Say it with --meta FILE.")
    return found[0] if found else None


def _stem(trace: Path) -> str:
    name = trace.name
    while name.lower().endswith(ENDINGS):
        name = name[: name.rindex(".")]
    return name


def _document(path: Path) -> Document:
    text = read_text(path, MAX_BYTES, "The metadata of a trace is a few lines of YAML.")
    if not isinstance(read_value(text, Mark(str(path))), dict):
        raise ConfigError.in_file(path, f"metadata is a list of fields such as `dp: 32`; known are {', '.join(FIELDS)}")
    return read_yaml(text, str(path))


def _values(document: Document, mistakes: list[Mistake]) -> dict[str, tuple[str, object]]:
    """Our name of a field -> its name in the file and its value."""
    values: dict[str, tuple[str, object]] = {}
    for name, value in document.data.items():
        field = FIELDS.get(name)
        if field is None:
            mistakes.append(document.mistake((name,), f"unknown field{did_you_mean(name, FIELDS)}"))
        elif field in values:
            mistakes.append(document.mistake((name,), f"means the same as {values[field][0]}. Keep one."))
        else:
            values[field] = (name, value)
    return values


def _degree(item: tuple[str, object], document: Document, mistakes: list[Mistake]) -> int:
    name, value = item
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RANKS:
        words = f"{short(value)}, but it must be a whole number from 1 to {MAX_RANKS:,}"
        mistakes.append(document.mistake((name,), words))
        return 1
    return value


def _check_world(
    job: JobShape, values: dict[str, tuple[str, object]], document: Document, mistakes: list[Mistake]
) -> None:
    if "world_size" not in values:
        return
    name, value = values["world_size"]
    if isinstance(value, bool) or value != job.world_size:
        words = f"dp {job.dp} x pp {job.pp} x tp {job.tp} x sp {job.sp} = {job.world_size}"
        mistakes.append(
            document.mistake((name,), f"{short(value)}, but {words}. Write {job.world_size}, or correct the degrees.")
        )


MAX_FILES = 100_000  # of a folder or a pattern


def open_trace(
    path: str | Path,
    meta: str | Path | None = None,
    unit: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    work_per_step: float | None = None,
    pattern: str | None = None,
    rank: int | None = None,
    kernels: bool = False,
) -> Trace | StepLog:
    """The recorded job at `path`.

    Args:
        path: a file of any known format (`TRACE_FORMATS`); for Kineto also the folder of the files of all ranks, or a pattern
            such as "run/rank*.json"; or the name of a shipped trace. The content decides the format.
        meta: file with the degrees of the job (YAML or JSON); by default the one next to the trace, then what the trace itself
            says, then the highest ranks in it.
        unit: of step times whose name does not say it: s, ms, us or ns.
        columns: of a log: name in the file -> step, step_time, rate or clock.
        work_per_step: tokens or samples of a step, by which a rate becomes a time.
        pattern: regular expression that finds the steps of a text log (`pattern_log`).
        rank: rank of a single Kineto profile, where it does not say.
        kernels: keep the kernels inside the ops, too (Kineto).

    Returns:
        The ops of all workers and steps; the step times alone where the format holds no ops (logs).

    Raises:
        DataError: cannot be read, of no known format, damaged, or without a complete step; names the place and the remedy.
        ConfigError: the metadata is wrong.
    """
    job = read_meta(meta) if meta is not None else None
    paths = files_of(path)
    known = _one_format(paths)
    stated = replace(_stated(unit, columns, work_per_step, pattern), rank=rank, kernels=kernels)
    found = known.read(paths) if stated == NOTHING_STATED else _read_stated(known, paths, stated)
    if isinstance(found, StepLog):
        return found if job is None else replace(found, name=job.name)
    table, inside = (found, None) if isinstance(found, OpTable) else found
    named = Path(path) if Path(path).is_dir() else paths[0]
    if (
        inside is not None and len(paths) == 1 and inside.world_size > 1 and known in PROFILES[1:]
    ):  # of several ranks in a file
        inside = replace(inside, name=paths[0].name.partition(".")[0])
    elif inside is not None and known.of_folder is not None:  # called like the folder
        folder = named if named.is_dir() else named.parent
        inside = replace(inside, name=folder.resolve().name or inside.name)
    return _assembled(table, named, job, inside)


def _stated(
    unit: str | None, columns: Mapping[str, str] | None, work_per_step: float | None, pattern: str | None
) -> Stated:
    if unit is not None and unit not in UNITS:
        raise DataError(f"--unit {unit}: not a unit of time. Name s, ms, us or ns.")
    if work_per_step is not None and not 0.0 < work_per_step < 1e30:
        raise DataError(f"--work-per-step {work_per_step:g}: must be more than 0.")
    return Stated(None if unit is None else UNITS[unit], work_per_step, dict(columns or {}), pattern)


def _read_stated(known: TraceFormat, paths: list[Path], stated: Stated) -> Recording:
    if stated.kernels and known not in PROFILES:
        raise DataError(f"{paths[0]}: {known.name} does not name kernels. Give profiles of PyTorch (Kineto).")
    if stated.pattern is not None:
        return read_by_pattern(paths[0], stated)
    if known.read_stated is None:
        raise DataError(
            f"{paths[0]}: files of this format ({known.name}) say the unit of their times and what their columns are. Leave out "
            "--unit, --map, --work-per-step and --rank."
        )
    return known.read_stated(paths, stated)


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
    """The folder of a shipped trace, if `path` is its name and no file has that name."""
    shipped = example_traces().get(str(path))
    return path if shipped is None or Path(path).exists() else shipped


def _assembled(table: OpTable, beside: Path, job: JobShape | None, inside: JobShape | None) -> Trace:
    """The trace, with the degrees that were given, are in a file next to it, are in it, or follow from its ranks."""
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
