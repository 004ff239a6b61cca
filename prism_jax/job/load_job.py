"""`load_job`: a job file, or the name of a shipped job, to a Job, or one error that lists every mistake with its place.

`--set plan.tp=4` replaces or adds a field before the document is checked, so that mistakes name the option. What cannot be a
job is refused before it is parsed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import BaseModel

from ..core.errors import ConfigError, DataError, FieldPath, Mark, Mistake, dotted
from ..core.read_file import read_text
from ..core.use_case import Argument
from ..framework.frameworks import FRAMEWORKS, runs_on
from ..framework.software import Software
from ..plan.packing import Data
from ..tables.document import MAX_DEPTH, Document, short
from ..tables.streams import example_files
from ..tables.yaml_toml import read_toml, read_value, read_yaml
from ..workload.captured.files import captured_file
from .cluster_section import read_cluster
from .job import Job, open_in_file
from .reading import DocumentReader
from .rules import problems
from .schema import Text, job_section, one_of
from .sections import (
    capture_document,
    names_capture,
    read_captured,
    read_data,
    read_model,
    read_plan,
    read_published,
    read_software,
    read_variability,
    refuse_kernels,
    with_captured_plan,
)

MOST_SHOWN = 200  # characters of an option in a message
SHORTHAND = (
    ("model",),
    ("cluster",),
    ("variability",),
    ("cluster", "device"),
)  # `model: x` is short for `model: {preset: x}`


def apply_overrides(document: Document, overrides: Sequence[str]) -> Document:
    """`document` with `overrides` ("path.to.field=value") applied in order; values are read as YAML.

    Raises:
        ConfigError: an override has no `=`, no path, a value that is not YAML, or goes through a plain value.
    """
    return with_fields(document, [_change(override) for override in overrides])


class FieldChange(NamedTuple):
    """A field that is replaced or added.

    Attributes:
        field: its path with dots, as `--set` takes it.
        text: its value in YAML; None where no value was written.
        mark: where it was written; one of an option becomes that of the field.
    """

    field: str
    text: str | None
    mark: Mark


def with_fields(document: Document, changes: Sequence[FieldChange]) -> Document:
    """`document` with fields replaced or added in order.

    Raises:
        ConfigError: a change has no value or no path, a value that is not YAML, or goes through a plain value.
    """
    data: dict[str, Any] = copy.deepcopy(document.data)
    marks = dict(document.marks)
    mistakes: list[Mistake] = []
    for change in changes:
        try:
            _apply(data, marks, change)
        except ConfigError as error:
            mistakes += error.mistakes
    if mistakes:
        raise ConfigError(mistakes)
    return Document(document.name, data, marks)


def _change(override: str) -> FieldChange:
    mark = Mark(f"--set {override if len(override) <= MOST_SHOWN else override[:MOST_SHOWN] + '...'}", option=())
    field, equals, text = override.partition("=")
    return FieldChange(field, text if equals else None, mark)


def _apply(data: dict[str, Any], marks: dict[FieldPath, Mark], change: FieldChange) -> None:
    field, text, mark = change
    keys = field.strip().split(".", MAX_DEPTH)
    if len(keys) > MAX_DEPTH:
        raise ConfigError([Mistake(f"a field of more than {MAX_DEPTH} parts", mark)])
    if text is None or not all(keys):
        raise ConfigError([Mistake("expected FIELD=VALUE, for example --set plan.tp=4", mark)])
    value = read_value(text, mark)
    path: FieldPath = ()
    container: Any = data
    for key in keys[:-1]:
        step = _step(container, key, path, mark)
        path = (*path, step)
        container = _opened(container, step, path, marks, mark)
    last = _step(container, keys[-1], path, mark)
    container[last] = value
    path = (*path, last)
    for old in [mark for mark in marks if mark[: len(path)] == path]:
        del marks[old]
    marks[path] = mark if mark.option is None else replace(mark, option=path)


def _opened(container: Any, step: Any, path: FieldPath, marks: dict[FieldPath, Mark], mark: Mark) -> Any:
    """Returns the value at `step`; an absent section is begun, a preset in shorthand is written out."""
    child = container[step] if isinstance(container, list) else container.get(step)
    if child is None:
        child = container[step] = {}
        marks.setdefault(path, mark)
    elif isinstance(container, dict) and path in SHORTHAND and isinstance(child, str):
        child = container[step] = {"preset": child}
        marks[(*path, "preset")] = marks.get(path, mark)
    return child


def _step(container: Any, key: str, path: FieldPath, mark: Mark) -> Any:
    """`key` as a key of a mapping or an index of a list."""
    if isinstance(container, dict):
        return key
    if not isinstance(container, list):
        raise ConfigError([Mistake(f"{dotted(path)} is {short(container)}, a plain value without fields", mark)])
    if not (key.isascii() and key.isdigit() and len(key) < 10 and int(key) < len(container)):
        text = f"{dotted(path)} is a list; {short(key)} must be an index from 0 to {len(container) - 1}"
        raise ConfigError([Mistake(text, mark)])
    return int(key)


MAX_BYTES = 2**20  # a job is a page of text


def read_job_file(path: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Document:
    """Document of the YAML or (by its ending) TOML file `path`, of a capture, of the shipped job of that name, or of a mapping;
    or of the job that the head of a training log states.

    Args:
        overrides: "section.field=value" texts that replace or add fields; of a log, they may be what its head does not say.

    Raises:
        ConfigError: no such file, not a file, unreadable, too large, not UTF-8 text, or not YAML or TOML; a mapping that holds
            what a file cannot; or an override that is none.
        DataError: a log of which no job can be made.
    """
    if isinstance(path, Mapping):
        return apply_overrides(mapping_document(path), overrides)
    if not isinstance(path, (str, Path)):
        text = f"a {type(path).__name__}, but a job is a file, the name of a shipped job, or a mapping of sections"
        raise ConfigError.in_file(MAPPING, text)
    file = find_job_file(path)
    name = str(path)
    if captured_file(file) is not None:
        return apply_overrides(capture_document(file, name), overrides)
    try:
        text = _text(file, name)
        found = read_toml(text, name) if file.suffix == ".toml" else read_yaml(text, name)
    except ConfigError:
        logged = _document_of_log(file, overrides)
        if logged is None:
            raise
        return logged
    logged = None if found.data.keys() & {"plan", "cluster"} else _document_of_log(file, overrides)
    return logged or apply_overrides(found, overrides)


LOG_READER = "prism_jax.launch.head_job"  # stands above: imported by name, and only for a file that is no job file


def _document_of_log(file: Path, overrides: Sequence[str]) -> Document | None:
    """The job that a file states as trainers do; None where it states none."""
    if not file.is_file():
        return None
    return import_module(LOG_READER).document_of_log(file, overrides)


MAPPING = "job"  # what messages and reports call a job that is a mapping


def mapping_document(data: Mapping[str, Any]) -> Document:
    """Document of a job that is given as a mapping of sections, as a job file holds them.

    Args:
        data: of texts, numbers (those of NumPy too), booleans, None, paths, lists and mappings; file names in it are those of
            the current folder.

    Raises:
        ConfigError: a key is no text, a value is something else, or it is nested too deeply.
    """
    return Document(MAPPING, {name: _plain(value, (name,)) for name, value in _fields(data, ()).items()})


def _plain(value: Any, path: FieldPath) -> Any:
    """A copy as a job file would hold it."""
    if len(path) > MAX_DEPTH:
        raise _no_field(path[:3], f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, Mapping):
        return {name: _plain(part, (*path, name)) for name, part in _fields(value, path).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part, (*path, index)) for index, part in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    value = value.item() if isinstance(value, np.generic) else value
    if value is not None and not isinstance(value, (str, bool, int, float)):
        raise _no_field(
            path, f"{type(value).__name__} is no value of a job file. Give a text, a number, a list or a mapping."
        )
    return value


def _fields(data: Mapping[Any, Any], path: FieldPath) -> Mapping[str, Any]:
    for name in data:
        if not isinstance(name, str):
            raise _no_field(path, f"the key {short(name)} is no text. Name fields as a job file does.")
    return data


def _no_field(path: FieldPath, text: str) -> ConfigError:
    return ConfigError([Mistake(text, Mark(MAPPING), path)])


def find_job_file(path: str | Path) -> Path:
    """`path` itself if something is there, else the shipped job of that bare name.

    Raises:
        ConfigError: neither exists; names the nearest.
    """
    if not str(path):
        raise ConfigError(
            [Mistake("the name of the job file is empty. `prism-jax show examples` lists the shipped jobs.")]
        )
    file = Path(path)
    try:
        exists = file.exists()
    except (OSError, ValueError) as error:
        raise ConfigError.in_file(path, f"not a usable file name: {error}") from None
    if exists:
        return file
    shipped = example_files()
    if str(path) in shipped:
        return shipped[str(path)]
    if file.is_symlink():
        raise ConfigError.in_file(path, "a link that leads nowhere. Name the file itself.")
    raise ConfigError.in_file(path, f"no such file.{_nearest(file, list(shipped))}")


def _nearest(file: Path, shipped: list[str]) -> str:
    beside = (
        [f.name for f in file.parent.iterdir() if f.suffix in (".yaml", ".yml", ".toml")]
        if file.parent.is_dir()
        else []
    )
    near = get_close_matches(file.stem, [Path(name).stem for name in beside], n=1, cutoff=0.65)
    if near:
        found = next(name for name in beside if Path(name).stem == near[0])
        return f" Did you mean {file.parent / found}?"
    near = get_close_matches(file.stem, shipped, n=1, cutoff=0.8)
    if near:
        return f" A shipped job is called {near[0]}."
    return " `prism-jax show examples` lists the shipped jobs."


def _text(file: Path, name: str) -> str:
    try:
        return read_text(file, MAX_BYTES, "A job is a page of YAML or TOML: name such a file.")
    except DataError as error:
        raise ConfigError.in_file(name, error.text) from None


SECTIONS: dict[str, Any] = {
    "name": (Text, None),
    "model": (Any, ...),
    "cluster": (Any, ...),
    "plan": (Any, ...),
    "software": (Any, None),
    "data": (Any, None),
    "published": (Any, None),
    "variability": (Any, None),
}


def load_job(path: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Job:
    """The job described by a YAML or TOML file, by the name of a shipped example, or by a mapping of the same sections.

    Args:
        path: the file, a name that `prism-jax show examples` lists, or `{"model": ..., "cluster": ..., "plan": {...}}`.
        overrides: "section.field=value" texts that replace or add fields, values read as YAML.

    Raises:
        ConfigError: everything that is wrong, one line per mistake.

    Example:
        >>> load_job("llama3_405b_16384", ["plan.micro_batch=2"])  # doctest: +SKIP
    """
    return job_of(read_job_file(path, overrides))


def job_of(document: Document) -> Job:
    """The job of a document; see `load_job`."""
    refuse_kernels(document)
    reading, captured = DocumentReader(document), None
    if names_capture(document):
        captured = read_captured(reading)
        if captured is None:
            raise ConfigError(reading.found)
        document = with_captured_plan(document, captured)
    document, called = _with_framework(document)
    reading = replace(reading, document=document)
    reading.validated(job_sections(), document.data, ())
    written = document.data.keys()
    plan = read_plan(reading) if "plan" in written else None
    software = read_software(reading) if "software" in written else Software()
    data = read_data(reading) if "data" in written else Data()
    stated = None if software is None or data is None else {"software": software, "data": data}
    plan = None if plan is None or stated is None else replace(plan, **stated)
    model = captured or (read_model(reading) if "model" in written else None)
    cluster = read_cluster(reading, plan) if "cluster" in written else None
    published = read_published(reading)
    variability = read_variability(reading, cluster)
    if plan is not None and model is not None and cluster is not None:
        for problem in problems(plan, model, cluster):
            reading.add(problem, () if problem.field.startswith("data.") else ("plan",))
    if reading.found or plan is None or model is None or cluster is None or variability is None:
        raise ConfigError(sorted(reading.found, key=lambda mistake: mistake.place))
    name = document.data.get("name") or Path(document.name).stem
    framework = document.data.get("framework") or ""
    said = {"called": called, "published": published, "open_plan": open_in_file(document.data, model, cluster)}
    return Job(model=model, cluster=cluster, plan=plan, variability=variability, name=name, framework=framework, **said)


def _with_framework(document: Document) -> tuple[Document, str]:
    """The document with the framework that the named software runs on, and that name; empty where it is one of ours."""
    name, plan = document.data.get("framework"), document.data.get("plan")
    if not isinstance(name, str) or name in FRAMEWORKS:
        return document, ""
    written = plan if isinstance(plan, dict) else {}
    stage = written.get("zero_stage")
    meant = runs_on(name, stage if isinstance(stage, int) else 0, str(written.get("sharding", "none")))
    if not meant:
        return document, ""
    return replace(document, data={**document.data, "framework": meant}), name


def job_sections() -> type[BaseModel]:
    """The top level of a job file; the frameworks that a job may name are those that are known now."""
    return _sections_of(tuple(FRAMEWORKS.names))


@lru_cache(maxsize=8)  # tables of jobs ask once per row
def _sections_of(frameworks: tuple[str, ...]) -> type[BaseModel]:
    return job_section({**SECTIONS, "framework": (one_of(frameworks), None)})


JobSource: TypeAlias = Job | str | Path | Mapping[str, Any]


def loaded(job: JobSource, overrides: Sequence[str] = ()) -> Job:
    """The job itself, or the one that a file describes.

    Args:
        job: a Job; YAML or TOML file; a name that `prism-jax show examples` lists; or a mapping of the sections of a file.
        overrides: "section.field=value" texts that replace or add fields of a file.

    Raises:
        ConfigError: everything that is wrong with a file.
        DataError: overrides of a Job.
    """
    if not isinstance(job, Job):
        return load_job(job, list(overrides))
    if overrides:
        raise DataError(
            f"overrides = {list(overrides)}, but they replace fields of a file. Replace fields of the Job itself."
        )
    return job


def source_of(job: JobSource) -> str:
    """Returns the name of the job in a run record."""
    if isinstance(job, Mapping):
        return str(job.get("name") or MAPPING)
    return job.name if isinstance(job, Job) else str(job)


JobFile = Annotated[
    JobSource,
    Argument(
        metavar="JOB",
        recorded_as=source_of,
        help="YAML or TOML file, a capture, a training log with a head, or a shipped job (`prism-jax show examples`).",
    ),
]
