"""JSON Schema of a report from the type hints of its dataclasses (draft 2020-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin

from .codec import Json, fields_of, optional_part
from .report import SCHEMA, Report

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string"}


def json_schema(kind: type[Report]) -> dict[str, Any]:
    """Schema of what `kind(...).to_dict()` returns."""
    definitions: dict[str, Any] = {}
    body = _object(kind, definitions)
    body["properties"] = {SCHEMA: {"const": kind.schema()}, **body["properties"]}
    body["required"] = [SCHEMA, *body["required"]]
    return {
        "$schema": DIALECT,
        "title": kind.schema(),
        "description": _first_line(kind),
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """Object with the fields of a dataclass; more fields may be there, in later versions."""
    properties: dict[str, Any] = {}
    required: list[str] = []
    for spec in fields_of(kind):
        stated = spec.hint if spec.is_required else optional_part(spec.hint) or spec.hint  # left out where it is None
        if spec.is_inline:
            beside = _object(stated, definitions)
            properties |= beside["properties"]
            required += beside["required"] if spec.is_required else []
            continue
        own = _of(stated, definitions)
        properties[spec.key] = {"anyOf": [own, {"type": "null"}]} if spec.is_unknown else own
        required += [spec.key] if spec.is_required else []
    return {"type": "object", "properties": properties, "required": required}


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    inner, origin = optional_part(hint), get_origin(hint)
    if inner is not None:
        return {"anyOf": [_of(inner, definitions), {"type": "null"}]}
    if isinstance(hint, type) and is_dataclass(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = {"description": _first_line(hint), **_object(hint, definitions)}
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if hint is Json:
        return {}
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin is tuple:
        return _array(get_args(hint), definitions)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(get_args(hint)[1], definitions)}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _of(get_args(hint)[0], definitions)}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    return {"anyOf": [_of(part, definitions) for part in get_args(hint)]}


def _array(parts: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return {"type": "array", "items": _of(parts[0], definitions)}
    items = [_of(part, definitions) for part in parts]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]
