"""What a field of a pydantic model takes, in words, and in which unit."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .... import units
from ..schema import OneOf, OrAuto, Quantity, Takes

SECTION = "section"
PLAIN = {bool: "true or false", float: "number", int: "whole number", str: "text"}


def quantity_of(field: FieldInfo) -> str | None:
    """What the field, or what its mapping holds, measures (a key of `units.UNITS`); None where it has no unit."""
    marks = [mark for _, found in _layers(field.annotation, field.metadata) for mark in found]
    return next((mark.kind for mark in marks if isinstance(mark, Quantity)), None)


def takes(field: FieldInfo) -> str:
    """What may be written: "whole number from 1", "one of full, sliding, chunked", "bandwidth (400 Gbit/s)"."""
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
    """The type and what it holds, each with its metadata, outermost first."""
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
