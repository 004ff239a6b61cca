"""job_fields: every field that a job file may have, with its values, default and description; and the page of the docs.

Names come from the schema and defaults from the dataclasses that the schema is made of; the words stand in
`field_descriptions.py`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..core import units
from ..framework.software import Software
from ..plan.packing import Data
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster, Device
from ..system.network import Tier
from ..variability.config import OWN_FIELDS, section_fields
from ..variability.family_registry import FAMILIES, family_fields
from ..variability.tree import PARTS, Stall, Variability
from ..workload.catalog import KINDS, TRANSFORMER, WorkloadKind
from ..workload.transformer.spec import TransformerSpec
from .cluster_section import DEVICE_FILLED_IN, DEVICE_SOURCES
from .field_descriptions import ABOUT, FORMS
from .job import Published
from .load_job import job_sections
from .schema import DEVICE_NAMES, TIER_NAMES, OneOf, OrAuto, Quantity, Takes, cluster_section, nested_types, section_of
from .sections import KIND, MODEL_FILLED_IN, MODEL_SOURCES, SOURCE as CAPTURE

SECTION = "section"
PLAIN = {bool: "true or false", float: "number", int: "whole number", str: "text"}


def quantity_of(field: FieldInfo) -> str | None:
    """Quantity that the field, or the values of its mapping, measure (a key of `units.UNITS`); None: it has no unit."""
    marks = [mark for _, found in _layers(field.annotation, field.metadata) for mark in found]
    return next((mark.kind for mark in marks if isinstance(mark, Quantity)), None)


def takes(field: FieldInfo) -> str:
    """Returns the values that may be written: "whole number from 1", "one of full, sliding, chunked", "bandwidth (400
    Gbit/s)".
    """
    return _words(field.annotation, field.metadata)


def _words(kind: Any, marks: Iterable[Any]) -> str:
    kind, marks = _opened(kind, marks)
    for mark in marks:
        if isinstance(mark, Takes):
            return mark.words
        if isinstance(mark, OneOf):
            return f"one of {', '.join(mark.names)}"
        if isinstance(mark, Quantity):
            return f"{mark.kind} ({units.EXAMPLE[mark.kind]})"
    if get_origin(kind) is tuple:
        return f"list: {_words(get_args(kind)[0], ())}"
    if get_origin(kind) is dict:
        key, value = get_args(kind)
        return f"mapping of {_words(key, ())} to {_words(value, ())}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return SECTION
    auto = " or auto" if any(isinstance(mark, OrAuto) for mark in marks) else ""
    return PLAIN[kind] + _bounds(marks) + auto


def _bounds(marks: Iterable[Any]) -> str:
    low = next((mark.ge for mark in marks if getattr(mark, "ge", None) is not None), None)
    high = next((mark.le for mark in marks if getattr(mark, "le", None) is not None), None)
    return ("" if low is None else f" from {low}") + ("" if high is None else f" to {high}")


def _layers(kind: Any, marks: Iterable[Any]) -> Iterable[tuple[Any, list[Any]]]:
    """The type and the types it holds, each with its metadata, outermost first."""
    kind, found = _opened(kind, marks)
    yield kind, found
    if get_origin(kind) in (dict, tuple):
        for inner in get_args(kind):
            if inner is not Ellipsis:
                yield from _layers(inner, ())


def _opened(kind: Any, marks: Iterable[Any]) -> tuple[Any, list[Any]]:
    """The type without `None` and `Annotated`, and all metadata."""
    found = [inner for mark in marks for inner in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
    if get_origin(kind) in (Union, types.UnionType):
        return _opened(next(arg for arg in get_args(kind) if arg is not type(None)), found)
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _opened(inner, [*found, *more])
    return kind, found


NEEDED = MISSING  # the default of a field that has none
CLASS = "<class>"  # any kernel class of a variability section
Path = tuple[str, ...]
EMPTY: Mapping[str, Any] = types.MappingProxyType({})


@dataclass(frozen=True)
class JobField:
    """One field of a job file.

    Attributes:
        path: from the top of the file; an item of a list has the name of the list.
        takes: permitted values, in words.
        default: value where the field is left out: a plain value, NEEDED, or None where that depends on other fields.
        about: description in one line.
    """

    path: Path
    takes: str
    default: Any
    about: str

    @property
    def name(self) -> str:
        """Full name: `plan.overlap.dp`."""
        return ".".join(self.path)


def job_fields() -> tuple[JobField, ...]:
    """All fields, section by section."""
    return tuple(field for name in job_sections().model_fields for field in (_top(name), *_SECTIONS.get(name, tuple)()))


def _top(name: str) -> JobField:
    is_needed = job_sections().model_fields[name].is_required()
    return _field((name,), takes_of=job_sections(), default=NEEDED if is_needed else None)


def _field(path: Path, takes_of: type[BaseModel] | None, default: Any) -> JobField:
    key = ".".join(path)
    stated = None if takes_of is None else takes_of.model_fields[path[-1]]
    words = FORMS[key] if key in FORMS or stated is None else takes(stated)
    return JobField(path, words, default, ABOUT.get(key) or (stated and stated.description) or "")


def _of_dataclass(
    path: Path, cls: type, names: Mapping[str, str] = EMPTY, filled_in: Mapping[str, Any] = EMPTY
) -> Iterator[JobField]:
    """Fields of a dataclass in the order of its section, those of nested sections behind each."""
    back = {written: name for name, written in names.items()}
    defaults = {item.name: _default(item) for item in fields(cls)} | dict(filled_in)
    for written in section_of(cls).model_fields:
        name = back.get(written, written)
        found = _field((*path, written), section_of(cls), defaults.get(name))
        yield found
        if found.takes == SECTION:
            yield from _of_dataclass((*path, written), nested_types(cls)[name])


def _default(item: Any) -> Any:
    value = item.default_factory() if item.default_factory is not MISSING else item.default
    return None if is_dataclass(value) else list(value) if isinstance(value, tuple) else value


def _model() -> Iterator[JobField]:
    for name in (*MODEL_SOURCES, CAPTURE, KIND):
        yield _field(("model", name), None, None)
    yield from _of_dataclass(("model",), TransformerSpec, filled_in=MODEL_FILLED_IN)


def fields_of_kind(kind: WorkloadKind) -> tuple[JobField, ...]:
    """Fields of `model: {kind: ...}` for one kind of model; those that transformers have, too, mean the same."""
    found = _of_dataclass(("model",), kind.spec, filled_in=MODEL_FILLED_IN)
    return tuple(replace(one, about=kind.words.get(".".join(one.path[1:]), one.about)) for one in found)


def _cluster() -> Iterator[JobField]:
    defaults = {item.name: _default(item) for item in fields(Cluster)}
    for name in cluster_section().model_fields:
        default = defaults.get(name)
        yield _field(("cluster", name), cluster_section(), None if default is NEEDED else default)
        if name == "device":
            for source in DEVICE_SOURCES:
                yield _field(("cluster", "device", source), None, None)
            yield from _of_dataclass(("cluster", name), Device, DEVICE_NAMES, DEVICE_FILLED_IN)
        elif name == "tiers":
            yield from _of_dataclass(("cluster", name), Tier, TIER_NAMES)


def _variability() -> Iterator[JobField]:
    defaults = {item.name: _default(item) for item in fields(Variability)} | {"stalls": []}
    for name in OWN_FIELDS:
        default = defaults.get(name)
        yield _field(("variability", name), None, default)
        if name == "stalls":
            for item in fields(Stall):
                yield _field(("variability", name, item.name), None, item.default)
    yield _field(("variability", CLASS), None, None)
    for part in PARTS:
        yield _field(("variability", CLASS, part), None, None)


_SECTIONS: dict[str, Callable[[], Iterator[JobField]]] = {
    "model": _model,
    "cluster": _cluster,
    "plan": lambda: _of_dataclass(("plan",), ParallelPlan),
    "software": lambda: _of_dataclass(("software",), Software),
    "data": lambda: _of_dataclass(("data",), Data),
    "published": lambda: _of_dataclass(("published",), Published),
    "variability": _variability,
}


HEAD = """\
# The fields of a job file

A job is one YAML or TOML file. `prism-jax init my_job.yaml` writes one to start from, with every common field in it;
`prism-jax check my_job.yaml` names every mistake with its line. `prism-jax show models llama-3-8b --yaml` (or `clusters`,
`devices`, `variability`, `examples`) prints a section that can be copied and changed. `--set plan.tp=4` replaces one field from
the command line.

A unit belongs to every quantity (`bandwidth: 400 Gbit/s`, `hbm: 80 GiB`, `latency: 12 us`). Bits are not bytes, and GB is not
GiB. Defaults hold where a field is left out: *needed* is one that may be left out only next to a preset, which has it; an empty
one follows from other fields, as its line says. This page is made from the code that checks job files:
`python docs/job_file.py`.
"""
TITLES = {
    "model": "`model: llama-3-8b` is short for `model: {preset: llama-3-8b}`. Fields next to `preset` or `hf_config` change it; "
    "`capture` stands alone ([capture](capture.md)). See [models](models.md).",
    "cluster": "`cluster: dgx-h100` is short for `cluster: {preset: dgx-h100}`. A list of tiers replaces those of a preset; "
    "`tiers: {rail: {oversubscription: 2}}` changes one of them.",
    "plan": "tp * cp * dp * pp is the number of GPUs; `dp: auto` fills `cluster.n_devices`.",
    "software": "Which kernels run and how they are started. What is left out is a distribution: the likeliest value is "
    "assumed, predictions stand at the mean over all, and their interval holds them. `check` says what is assumed and what "
    "else it may be.",
    "data": "What is known of the samples. With lengths, attention counts the pairs of tokens of one document.",
    "published": "What others measured of this very job stands next to what is predicted; TFLOP/s and MFU by both counts of "
    "attention.",
    "variability": "A number alone is the coefficient of variation of a log-normal factor. "
    "`prism-jax show families` lists the families.",
}


def page() -> str:
    """Returns the page of all fields, in Markdown."""
    found = job_fields()
    blocks = [HEAD, "## Top level\n", _table(field for field in found if len(field.path) == 1)]
    for section, words in TITLES.items():
        blocks += [f"## `{section}`\n", f"{words}\n"]
        blocks.append(_table(field for field in found if field.path[0] == section and len(field.path) > 1))
    classes = [name for name in section_fields() if name not in OWN_FIELDS]
    blocks.append(f"`{CLASS}` is one of {', '.join(f'`{name}`' for name in classes)}, or a kernel class of your own.\n")
    blocks += ["### Families\n", _families()]
    blocks += [text for kind in KINDS if kind is not TRANSFORMER for text in _kind(kind)]
    return "\n".join(blocks)


def _kind(kind: WorkloadKind) -> Iterator[str]:
    """Heading and table of the models of one kind."""
    yield f"## `model: {{kind: {kind.name}, ...}}`\n"
    names = ", ".join(f"`{preset.name}`" for preset in kind.presets)
    yield f"{kind.about[:1].upper()}{kind.about[1:]}.{f' Presets: {names}.' if names else ''}\n"
    yield _table(fields_of_kind(kind))


def _table(rows: Iterable[JobField]) -> str:
    lines = ["| field | takes | default | what it is |", "|---|---|---|---|"]
    lines += [f"| `{field.name}` | {field.takes} | {_page_default(field.default)} | {field.about} |" for field in rows]
    return "\n".join(lines) + "\n"


def _page_default(value: Any) -> str:
    if value is NEEDED:
        return "needed"
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _families() -> str:
    lines = ["| `kind` | fields |", "|---|---|"]
    for name in FAMILIES.names:
        lines.append(f"| `{name}` | {', '.join(f'`{field.name}`' for field in family_fields(name))} |")
    return "\n".join(lines) + "\n"
