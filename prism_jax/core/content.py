"""Equality by content, for objects that hold arrays and mappings, which `==` cannot compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from types import FunctionType
from typing import Any

from .lazy import np


def content_hash(*values: object) -> str:
    """Text that is the same for the same content, in every process and on every machine.

    Args:
        values: dataclasses (by type and the fields that they compare), mappings, tuples, lists, arrays, numbers, texts, None, and
            functions that a module defines by name.

    Raises:
        TypeError: something among them has no content that can be written down, such as a function or a traced value.
    """
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        for part in _parts(value):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


class ByContent:
    """Base of frozen dataclasses (declared with `eq=False`) that are equal, and hash alike, when their fields hold the same.

    What a `cached_property` keeps is neither compared nor pickled.
    """

    @cached_property
    def content(self) -> str:
        """`content_hash` of the fields."""
        return content_hash(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return self.content == other.content if isinstance(other, ByContent) else NotImplemented

    def __hash__(self) -> int:
        return int(self.content[:15], 16)

    def __getstate__(self) -> dict[str, Any]:
        return {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]


def _name(of: Any) -> str:
    """Name of a class or function; of our own without its module, so that content stays the same when code moves."""
    own = of.__module__.partition(".")[0] in ("prism_jax", "inference")
    return of.__qualname__ if own else f"{of.__module__}.{of.__qualname__}"


def _parts(value: Any) -> Iterator[bytes]:
    match value:
        case None | bool() | int() | float() | str() | Enum():
            yield f"{type(value).__name__} {value!r}".encode()
        case Mapping():
            yield f"mapping {len(value)}".encode()
            yield from _parts_of(item for key in sorted(value, key=repr) for item in (key, value[key]))
        case tuple() | list() | frozenset():
            yield f"{type(value).__name__} {len(value)}".encode()
            yield from _parts_of(sorted(value, key=repr) if isinstance(value, frozenset) else value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            yield f"{type(value).__module__}.{type(value).__qualname__}".encode()
            yield from _parts_of(getattr(value, item.name) for item in fields(value) if item.compare)
        case FunctionType() if "<" not in value.__qualname__:
            yield _name(value).encode()
        case type():
            yield _name(value).encode()
        case np.ndarray() | np.generic():
            array = np.asarray(value)
            yield f"array {array.dtype.str} {array.shape}".encode()
            yield np.ascontiguousarray(array).tobytes()
        case _:
            raise TypeError(f"{value!r} of type {type(value).__name__} has no content that can be compared")


def _parts_of(values: Iterable[Any]) -> Iterator[bytes]:
    return (part for value in values for part in _parts(value))
