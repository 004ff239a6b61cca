"""What a stored dataclass must hold: the type of every field, the axes of every array, and what its indices point at.

A dataclass with arrays says so in `AXES`: axes -> fields that have them. Axes of one name are equally long ("gpu covariate"), and
a number is a length; behind "->" is the axis on which the integers of a field are places ("cell -> gpu"; "or -1": or nowhere).
A tuple has one axis. What is read from a file is checked by this before it is used.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from prism_jax.errors import DataError

T = TypeVar("T")
LARGEST = 1 << 62
NUMBERS = "biuf"  # kinds of arrays of which the hint says no dtype


def built(kind: type[T], given: Mapping[str, Any]) -> T:
    """The dataclass `kind` of those values; lists stand for tuples, and defaults for what is absent.

    Raises:
        DataError: a field is missing, unknown, of another type or of another shape.
    """
    hints = get_type_hints(kind)
    known = {item.name: item for item in fields(kind)}  # pyright: ignore[reportArgumentType]
    for name in given.keys() - known.keys():
        raise DataError(f"{name[:40]!r} is no part of {kind.__name__}.")
    found = {}
    for name, item in known.items():
        if name in given:
            found[name] = _of_type(name, hints[name], given[name])
        elif item.default is MISSING and item.default_factory is MISSING:
            raise DataError(f"{name} of {kind.__name__} is missing.")
    value = kind(**found)
    check_axes(value)
    return value


def check_axes(value: Any) -> None:
    """Whether the arrays of a dataclass are as its `AXES` say.

    Raises:
        DataError: an array has other axes, or an index points beyond its axis.
    """
    lengths: dict[str, int] = {}
    places: list[tuple[str, str]] = []
    for text, names in getattr(value, "AXES", {}).items():
        axes, _, onto = text.partition(" -> ")
        for name in names.split():
            _check_lengths(name, axes.split(), np.shape(_outer(getattr(value, name))), lengths)
            places += [(name, onto)] if onto else []
    for name, onto in places:
        axis, _, nowhere = onto.partition(" or ")
        length, place = int(axis) if axis.isdigit() else lengths[axis], getattr(value, name)
        if place.dtype.kind not in "iu" or ((place < int(nowhere or 0)) | (place >= length)).any():
            raise DataError(f"{name} points at what is not there.")


def _check_lengths(name: str, axes: list[str], shape: tuple[int, ...], lengths: dict[str, int]) -> None:
    """Whether a field has those axes; notes lengths of axes not met before."""
    if len(shape) != len(axes):
        raise DataError(f"{name} has {len(shape)} axes, but it must have {len(axes)}.")
    for axis, length in zip(axes, shape, strict=True):
        if lengths.setdefault(axis, int(axis) if axis.isdigit() else length) != length:
            raise DataError(f"{name} has {length:,} values, but there are {lengths[axis]:,} ({axis}).")


def _outer(value: Any) -> Any:
    """Of tuples, one place per item."""
    return np.empty(len(value), bool) if isinstance(value, tuple) else value


def _of_type(name: str, hint: Any, value: Any) -> Any:
    found = _tupled(value)
    if not _is(hint, found):
        raise DataError(f"{name} is of another type.")
    return found


def _tupled(value: Any) -> Any:
    """Lists, which is what JSON makes of tuples, as tuples."""
    return tuple([_tupled(item) for item in value]) if isinstance(value, list) else value


def _is(hint: Any, value: Any) -> bool:
    """Whether `value` is of a type that the dataclasses of fits are made of."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is(part, value) for part in parts)
    if hint in (np.ndarray, Any) or origin in (np.ndarray, NDArray):  # `Floats` is `Any` while a program runs
        return isinstance(value, np.ndarray) and value.dtype.kind in (_kind(parts) or NUMBERS)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is(parts[0], item) for item in value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, dict) and all(_is(parts[1], item) for item in value.values())
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST
    return isinstance(value, hint)


def _kind(parts: tuple[Any, ...]) -> str:
    """Of `NDArray[np.float64]`, in whichever way NumPy spells it: that of floats, of whatever width; empty where none is said."""
    for part in parts:
        if isinstance(part, type) and issubclass(part, np.generic):
            return np.dtype(part).kind
        if found := _kind(get_args(part)):
            return found
    return ""
