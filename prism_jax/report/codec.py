"""Frozen dataclasses to plain JSON types and back, by their type hints.

A field may say how it stands in JSON: `Annotated[float, Key("S")]` is called S there, the fields of an
`Annotated[RunRecord, INLINE]` stand beside those of the whole, and `Annotated[int | None, WHERE_KNOWN] = None` is absent where
it is None. What a method or property marked `@shown` returns stands behind the fields and is not read back. Numbers that JSON
lacks, NaN and infinity, are written as null; a field whose default is NaN, or an `Annotated[float, OR_NULL]`, may be.

This module lies below the domain, whose types say it of their own fields: they are parts of reports as they are.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

Json: TypeAlias = Any  # what JSON can hold and whose content is not ours: inputs of a run, what a model says of itself
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Key:
    """Name of a field in JSON, where it is not that of the field."""

    name: str


@dataclass(frozen=True)
class Marker:
    """How a field stands in JSON."""

    what: str


INLINE, WHERE_KNOWN, OR_NULL = Marker("inline"), Marker("where known"), Marker("or null")


def shown(function: F) -> F:
    """Marks a method without arguments, or the function below `@property`, whose value stands in JSON behind the fields."""
    function.is_shown = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True)
class FieldSpec:
    """A field as it stands in JSON.

    Attributes:
        name, key: in Python and in JSON.
        hint: type, without what is said of it.
        is_inline: its own fields stand beside those of the whole.
        is_required: whether it is always there; else it is left out where it is None.
        is_unknown: whether it may be null: a number whose default is NaN, or that says so.
        is_read: whether it is a field; what is `shown` follows from the fields.
    """

    name: str
    key: str
    hint: Any
    is_inline: bool
    is_required: bool
    is_unknown: bool
    is_read: bool = True


@functools.cache
def fields_of(kind: type) -> tuple[FieldSpec, ...]:
    """Fields of a dataclass, in order, and what it shows beside them."""
    hints = get_type_hints(kind, include_extras=True)
    stated = [_spec(item.name, hints[item.name], item.default != item.default) for item in fields(kind)]
    methods = ((name, getattr(item, "fget", item)) for name, item in vars(kind).items())
    derived = [(name, of) for name, of in methods if getattr(of, "is_shown", False)]
    return (*stated, *(_spec(name, get_type_hints(of)["return"], False, False) for name, of in derived))


def optional_part(hint: Any) -> Any:
    """X of `X | None`; None where `hint` is no such union."""
    if get_origin(hint) not in (Union, types.UnionType):
        return None
    parts = [part for part in get_args(hint) if part is not type(None)]
    return parts[0] if len(parts) == 1 and type(None) in get_args(hint) else None


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists, texts, finite numbers, booleans and None."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value)
    if isinstance(value, Mapping):
        return {str(name): to_plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    to_list = getattr(value, "tolist", None)  # of arrays and numbers of NumPy, which is not imported for them
    if to_list is not None:
        return to_plain(to_list())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def from_plain(kind: type[T], data: Any) -> T:
    """The value of type `kind` that `to_plain` has made `data` of.

    Raises:
        KeyError: a field is missing.
        TypeError: `data` is not of that shape.
    """
    return _read(kind, data)


def _spec(name: str, hint: Any, is_unknown: bool, is_read: bool = True) -> FieldSpec:
    inner, *said = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    key = next((item.name for item in said if isinstance(item, Key)), name)
    return FieldSpec(name, key, inner, INLINE in said, WHERE_KNOWN not in said, is_unknown or OR_NULL in said, is_read)


def _plain_fields(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for spec in fields_of(type(value)):
        own = getattr(value, spec.name)
        own = own if spec.is_read or not callable(own) else own()
        if own is None and not spec.is_required:
            continue
        if spec.is_inline:
            found |= to_plain(own)
        else:
            found[spec.key] = to_plain(own)
    return found


def _read(hint: Any, data: Any) -> Any:
    origin, inner = get_origin(hint), optional_part(hint)
    if inner is not None:
        return None if data is None else _read(inner, data)
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_fields(hint, data)
    if origin is tuple:
        return _read_tuple(get_args(hint), data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {name: _read(get_args(hint)[1], value) for name, value in data.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [_read(get_args(hint)[0], value) for value in data]
    if hint is float:
        return math.nan if data is None else float(data)
    return data


def _read_tuple(parts: tuple[Any, ...], data: Sequence[Any]) -> tuple[Any, ...]:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return tuple(_read(parts[0], value) for value in data)
    return tuple(_read(part, value) for part, value in zip(parts, data, strict=True))


def _read_fields(kind: type, data: Mapping[str, Any]) -> Any:
    found: dict[str, Any] = {}
    for spec in fields_of(kind):
        if not spec.is_read:
            continue
        if spec.is_inline:
            found[spec.name] = _read_inline(spec, data)
        elif spec.key in data:
            found[spec.name] = _read(spec.hint, data[spec.key])
        elif spec.is_required:
            raise KeyError(spec.key)
    return kind(**found)


def _read_inline(spec: FieldSpec, data: Mapping[str, Any]) -> Any:
    if spec.is_required:
        return _read(spec.hint, data)
    inner = optional_part(spec.hint)
    return _read(inner, data) if _required(inner) <= data.keys() else None


def _required(kind: type) -> set[str]:
    """Names that are always there, those of dataclasses inside included."""
    found: set[str] = set()
    for spec in fields_of(kind):
        if spec.is_required:
            found |= _required(spec.hint) if spec.is_inline else {spec.key}
    return found
