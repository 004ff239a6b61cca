"""What a user's file has to define, and what is made of it.

Either a jitted function and, beside it, `example_args` (a tuple, or a function that returns one) and perhaps `example_kwargs`;
or a function without arguments that returns `(jitted, args)`, `(jitted, args, kwargs)`, or what `jitted.lower(...)` gives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import DataError
from ..user_code import user_errors

REMEDY = (
    "Give a jitted function with example_args beside it, or a function without arguments that returns the jitted step and "
    "its arguments."
)


@dataclass(frozen=True)
class Step:
    """A step that can be lowered.

    Attributes:
        lower: gives what can be compiled, or what was.
        args, kwargs: arrays, or `jax.ShapeDtypeStruct`s with shardings.
    """

    lower: Callable[[], Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def step_of(path: Path, name: str, found: Callable[..., Any], module: ModuleType | None) -> Step:
    """The step that `found`, called `name` in the file, stands for.

    Raises:
        DataError: it is none of the forms above; or the user's code raises.
    """
    if hasattr(found, "lower"):
        return _beside(path, name, found, module)
    if _needs_arguments(found):
        raise DataError(f"{path}: {name} takes arguments, but is not jitted. {REMEDY}")
    with user_errors(path, f"calling {name}"):
        given = found()
    if hasattr(given, "compile") or hasattr(given, "memory_analysis"):
        return Step(lambda: given)
    parts: tuple[Any, ...] = given if isinstance(given, tuple) else ()
    if not 2 <= len(parts) <= 3 or not hasattr(parts[0], "lower"):
        raise DataError(
            f"{path}: {name} returns {type(given).__name__}, whose first element is no jitted function. {REMEDY}"
        )
    return _jitted(path, name, parts[0], parts[1], parts[2] if len(parts) > 2 else {})


def _needs_arguments(found: Callable[..., Any]) -> bool:
    return any(
        one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        for one in inspect.signature(found).parameters.values()
    )


def _beside(path: Path, name: str, found: Callable[..., Any], module: ModuleType | None) -> Step:
    given = getattr(module, "example_args", None)
    if given is None:
        raise DataError(f"{path}: {name} is jitted, but the file has no example_args. {REMEDY}")
    kwargs = getattr(module, "example_kwargs", {})
    with user_errors(path, "calling example_args"):
        given = given() if callable(given) else given
        kwargs = kwargs() if callable(kwargs) else kwargs
    return _jitted(path, name, found, given, kwargs)


def _jitted(path: Path, name: str, jitted: Any, args: Any, kwargs: Any) -> Step:
    if not isinstance(args, (tuple, list)) or not isinstance(kwargs, Mapping):
        raise DataError(f"{path}: the arguments of {name} are {type(args).__name__}, but must be a tuple. {REMEDY}")
    return Step(lambda: jitted.lower(*args, **kwargs), tuple(args), dict(kwargs))
