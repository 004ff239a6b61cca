"""The small YAML file beside a trace that states the degrees of the recorded job.

Fields: name (or trial_name), dp, pp, tp, sp (or dp_size, pp_size, tp_size, dsp_size), virtual_stages (or vpp_size), each 1 if
absent; world_size, which must be their product without virtual_stages; run_id, which is not used.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..._core.input_file import read_text
from ...errors import ConfigError, Mark, Mistake
from ...hints import did_you_mean
from ...recorded.trace.op_table import MAX_RANKS, JobShape
from ..job.document import Document, short
from ..job.read_yaml import read_value, read_yaml

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
    """The metadata file beside `trace` (a file or a folder), None if there is none.

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
