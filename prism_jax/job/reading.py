"""Reading: a document (a job, a search space) on its way to core types; every mistake is added to a list instead of ending it.

A mistake is one line: where, field, value, constraint, remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from ..core.errors import ConfigError, FieldPath, Mistake, PrismError, Problem
from ..core.registry import ELSEWHERE, did_you_mean
from ..framework.software import Software
from ..plan.plan import ParallelPlan
from ..tables.document import Document, short
from .schema import NotOneOfError, cluster_section, section_of

T = TypeVar("T")


@dataclass(frozen=True)
class DocumentReader:
    """A document, and the mistakes that were found in it."""

    document: Document
    found: list[Mistake] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        """Sections of the document."""
        return self.document.data

    def refuse(self, path: FieldPath, text: str) -> None:
        """Adds a mistake in the field at `path`."""
        self.found.append(self.document.mistake(path, text))

    def attempt(self, build: Callable[[], T], path: FieldPath) -> T | None:
        """Result of `build`, or None after adding its error, placed at the field that the error speaks of."""
        try:
            return build()
        except ConfigError as error:
            self.found.extend(error.mistakes)
        except PrismError as error:
            self.found.append(self._placed(error, path))
        return None

    def _placed(self, error: PrismError, path: FieldPath) -> Mistake:
        """An error in the section at `path` as a mistake, at its field if that was written."""
        if error.path and (*path, *error.path) in self.document.marks:
            return self.document.mistake((*path, *error.path), error.text)
        return self.document.mistake(path, str(error))

    def add(self, problem: Problem, path: FieldPath) -> None:
        """Adds a problem of the section at `path`, at its field if that was written or is missing."""
        if problem.is_missing:
            self.refuse((*path, problem.field), problem.text)
        else:
            self.found.append(self._placed(PrismError.of(problem), path))

    def validated(self, schema: type[BaseModel], data: Any, path: FieldPath) -> BaseModel | None:
        """`data` as `schema`, or None after adding every mistake."""
        try:
            return schema.model_validate(data)
        except ValidationError as error:
            for item in error.errors(include_url=False):
                inside = tuple(part for part in item["loc"] if part != "[key]")
                text = _message(item, _known(schema, inside[:-1]), (*path, *inside[:-1]))
                self.refuse((*path, *inside), text)
            return None

    def mapping_at(self, path: FieldPath, words: str) -> dict[str, Any] | None:
        """The mapping at `path`; a text there is short for `{preset: text}`."""
        value: Any = self.data
        for part in path:
            value = value[part]
        if isinstance(value, str) and value:
            return {"preset": value}
        if isinstance(value, dict):
            return value
        state = "is empty" if value in (None, "") else f"{short(value)}"
        self.refuse(path, f"{state}; it must be {words}")
        return None

    def source_among(self, data: dict[str, Any], sources: tuple[str, ...], path: FieldPath) -> str | None:
        """The one of exclusive `sources` that is given ("" for none); None after a mistake (two, or not a text)."""
        given = [source for source in sources if source in data]
        if len(given) > 1:
            self.refuse((*path, given[1]), f"cannot be combined with {given[0]}. Keep one.")
            return None
        if given and not (isinstance(data[given[0]], str) and data[given[0]]):
            self.refuse((*path, given[0]), f"{short(data[given[0]])}, but it must be a text")
            return None
        return given[0] if given else ""


_MUST_BE = {
    "int_type": "an integer, in digits only",
    "int_from_float": "an integer, in digits only",
    "int_parsing": "an integer, in digits only",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "string_too_short": "a text that is not empty",
    "too_short": "a mapping that is not empty",
}
_BOUND = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


SECTIONS_OF_FIELDS = {
    "plan": lambda: section_of(ParallelPlan),
    "cluster": cluster_section,
    "software": lambda: section_of(Software),
}


def _field_meant_by(name: str) -> str:
    """The field of a section that is meant by a name that stands outside of all: "plan.tp"; empty where there is none."""
    for section, schema in SECTIONS_OF_FIELDS.items():
        known = _known(schema(), ())
        spelt = name.lower().lstrip("-").replace("-", "_")
        meant = spelt if spelt in known else ELSEWHERE.get(spelt, "")
        if meant and meant.split(".")[0] in known:
            return f"{section}.{meant}"
    return ""


def _message(item: Mapping[str, Any], known: list[str], path: FieldPath) -> str:
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        name = item["loc"][-1]
        at_the_top = not path and {"plan", "cluster"} <= {*known}
        section = _field_meant_by(str(name)) if at_the_top or (len(path) == 1 and path[0] in SECTIONS_OF_FIELDS) else ""
        if section and (at_the_top or section.endswith(f".{name}")):
            return f"unknown field, did you mean {section}?"
        if "dropout" in str(name).lower():
            return "unknown field: dropout is not modelled. Leave it out."
        return f"unknown field{did_you_mean(name, known)}"
    if kind == "missing":
        return "is missing"
    if kind in _BOUND:
        words, key = _BOUND[kind]
        return f"{short(value)}, but it must be {words} {context[key]:g}"
    if kind == "value_error":
        error = context["error"]
        return f"{short(value)} {error}" if isinstance(error, NotOneOfError) else str(error)
    if value is None:
        return f"is empty; it must be {_MUST_BE.get(kind, 'given')}"
    return f"{short(value)}, but it must be {_MUST_BE[kind]}" if kind in _MUST_BE else f"{short(value)}: {item['msg']}"


def _known(schema: type[BaseModel], path: FieldPath) -> list[str]:
    """Field names of the section at `path` inside `schema`."""
    for part in path:
        field = schema.model_fields.get(str(part))
        inner = _model_in(field.annotation) if field is not None else None
        if inner is None:
            break
        schema = inner
    return list(schema.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for arg in get_args(annotation) if (model := _model_in(arg)) is not None), None)
