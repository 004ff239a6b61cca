"""Which array library a formula runs on: NumPy, or JAX where one of its numbers is a JAX array or is being traced.

Costs are arithmetic on peaks, bandwidths and latencies. On plain floats it runs in NumPy; where a caller differentiates or
compiles a function of such a number, the same arithmetic runs on the traced values. JAX is not imported here: its arrays know
their own library (`__array_namespace__` of the array API standard).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, TypeAlias

Values: TypeAlias = Any
"""Real numbers in an array of NumPy or of JAX, or one number."""

_PLAIN = frozenset({float, int, str, bool, type(None)})


def namespace(*things: Any) -> Any:
    """`numpy`, or `jax.numpy` if any number in `things` is a JAX array or tracer.

    Args:
        things: numbers, arrays, and tuples, mappings or dataclasses that hold such.
    """
    found = _foreign(things)
    if found is not None:
        return found.__array_namespace__()
    import numpy as np  # on first use: commands without arithmetic load this module, too

    return np


def is_numpy(library: Any) -> bool:
    """Whether `library`, a result of `namespace`, is NumPy."""
    return library.__name__ == "numpy"


def is_traced(value: Any) -> bool:
    """Whether `value` belongs to JAX, so that it cannot be checked, compared or hashed on the host."""
    return not _is_plain(value) and _foreign((value,)) is not None


def _foreign(things: Iterable[Any]) -> Any | None:
    """The first array in `things` that is not of NumPy."""
    for thing in things:
        match _kind(type(thing)):
            case "plain":
                found = None
            case "sequence":
                found = _foreign(thing)
            case "mapping":
                found = _foreign(thing.values())
            case "dataclass":
                found = _foreign(vars(thing).values())
            case _:
                found = thing if hasattr(thing, "__array_namespace__") else None
        if found is not None:
            return found
    return None


def _is_plain(thing: Any) -> bool:
    """Whether `thing` is a number, a text or an array of NumPy; asked without loading NumPy."""
    return _kind(type(thing)) == "plain"


@lru_cache(maxsize=1024)
def _kind(of: type) -> str:
    """What objects of a type are to `_foreign`; asked once per type, since costs ask thousands of times."""
    if of in _PLAIN or of.__module__ == "numpy":
        return "plain"
    if issubclass(of, (tuple, list)):
        return "sequence"
    if issubclass(of, Mapping):
        return "mapping"
    return "dataclass" if is_dataclass(of) else "array"
