"""What pydantic found wrong, as one line per mistake: where, field, value, constraint, remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from ...errors import Mistake
from ...hints import did_you_mean
from .document import Document, Path, short
from .schema import NotOneOfError

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


def validated(
    schema: type[BaseModel], data: Any, document: Document, path: Path, found: list[Mistake]
) -> BaseModel | None:
    """`data` as `schema`, or None after adding every mistake to `found`."""
    try:
        return schema.model_validate(data)
    except ValidationError as error:
        found += [_line(item, schema, document, path) for item in error.errors(include_url=False)]
        return None


def _line(item: Mapping[str, Any], schema: type[BaseModel], document: Document, path: Path) -> Mistake:
    inside = tuple(part for part in item["loc"] if part != "[key]")
    return document.mistake((*path, *inside), _message(item, _known(schema, inside[:-1])))


def _message(item: Mapping[str, Any], known: list[str]) -> str:
    kind, value, context = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        name = item["loc"][-1]
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


def _known(schema: type[BaseModel], path: Path) -> list[str]:
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
