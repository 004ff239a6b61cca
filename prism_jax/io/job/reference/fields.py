"""job_fields: every field that a job file may have, with what it takes, its default and what it is.

Names come from the schema and defaults from the dataclasses that the schema is made of; only the words stand in `about.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from typing import Any

from pydantic import BaseModel

from ....plan.plan import ParallelPlan
from ....software.choices import Software
from ....system.hardware import Cluster, Device, Tier
from ....variability.config import OWN_FIELDS
from ....variability.tree import PARTS, Stall, Variability
from ....workload.kinds import WorkloadKind
from ....workload.transformer.spec import TransformerSpec
from ..captured.section import SOURCE as CAPTURE
from ..cluster_section import DEVICE_FILLED_IN, DEVICE_SOURCES
from ..load_job import job_sections
from ..schema import (
    DEVICE_NAMES,
    TIER_NAMES,
    cluster_section,
    device_section,
    model_section,
    nested_types,
    plan_section,
    software_section,
    tier_section,
)
from ..sections import KIND, MODEL_FILLED_IN, MODEL_SOURCES
from .about import ABOUT, FORMS
from .values import SECTION, takes

NEEDED = MISSING  # the default of a field that has none
CLASS = "<class>"  # any kernel class of a variability section
Path = tuple[str, ...]


@dataclass(frozen=True)
class JobField:
    """One field.

    Attributes:
        path: from the top of the file; an item of a list has the name of the list.
        takes: what may be written, in words.
        default: what holds where it is left out: a plain value, NEEDED, or None where that depends on other fields.
        about: what it is, in a line.
    """

    path: Path
    takes: str
    default: Any
    about: str

    @property
    def name(self) -> str:
        """`plan.overlap.dp`."""
        return ".".join(self.path)


def job_fields() -> tuple[JobField, ...]:
    """All fields, section by section."""
    return tuple(field for name in job_sections().model_fields for field in (_top(name), *_SECTIONS.get(name, _none)()))


def _none() -> Iterator[JobField]:
    yield from ()


def _top(name: str) -> JobField:
    return _field((name,), takes_of=job_sections(), default=NEEDED if _is_needed(job_sections(), name) else None)


def _is_needed(section: type[BaseModel], name: str) -> bool:
    return section.model_fields[name].is_required()


def _field(path: Path, takes_of: type[BaseModel] | None, default: Any) -> JobField:
    key = ".".join(path)
    words = FORMS[key] if key in FORMS or takes_of is None else takes(takes_of.model_fields[path[-1]])
    return JobField(path, words, default, ABOUT.get(key, ""))


def _of_dataclass(
    path: Path, cls: type, section: type[BaseModel], names: Mapping[str, str], filled_in: Mapping[str, Any]
) -> Iterator[JobField]:
    """Fields of a dataclass in the order of its schema, those of nested sections behind each."""
    back = {written: name for name, written in names.items()}
    defaults = {item.name: _default(item) for item in fields(cls)} | dict(filled_in)
    for written in section.model_fields:
        name = back.get(written, written)
        found = _field((*path, written), section, defaults.get(name))
        yield found
        if found.takes == SECTION:
            inner = nested_types(cls)[name]
            yield from _of_dataclass((*path, written), inner, model_section(inner, False), {}, {})


def _default(item: Any) -> Any:
    value = item.default_factory() if item.default_factory is not MISSING else item.default
    return None if is_dataclass(value) else list(value) if isinstance(value, tuple) else value


def _plan() -> Iterator[JobField]:
    yield from _of_dataclass(("plan",), ParallelPlan, plan_section(), {}, {})


def _software() -> Iterator[JobField]:
    yield from _of_dataclass(("software",), Software, software_section(), {}, {})


def _model() -> Iterator[JobField]:
    for name in (*MODEL_SOURCES, CAPTURE, KIND):
        yield _field(("model", name), None, None)
    section = model_section(TransformerSpec, False)
    yield from _of_dataclass(("model",), TransformerSpec, section, {}, MODEL_FILLED_IN)


def fields_of_kind(kind: WorkloadKind) -> tuple[JobField, ...]:
    """Fields of `model: {kind: ...}` for one kind of model; those that transformers have, too, mean the same."""
    found = _of_dataclass(("model",), kind.spec, model_section(kind.spec, False), {}, MODEL_FILLED_IN)
    return tuple(replace(one, about=kind.words.get(".".join(one.path[1:]), one.about)) for one in found)


def _cluster() -> Iterator[JobField]:
    defaults = {item.name: _default(item) for item in fields(Cluster)}
    for name in cluster_section().model_fields:
        default = defaults.get(name)
        yield _field(("cluster", name), cluster_section(), None if default is NEEDED else default)
        if name == "device":
            for source in DEVICE_SOURCES:
                yield _field(("cluster", "device", source), None, None)
            yield from _of_dataclass(("cluster", name), Device, device_section(False), DEVICE_NAMES, DEVICE_FILLED_IN)
        elif name == "tiers":
            yield from _of_dataclass(("cluster", name), Tier, tier_section(False), TIER_NAMES, {})


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


_SECTIONS = {"model": _model, "cluster": _cluster, "plan": _plan, "software": _software, "variability": _variability}
