"""Imports on first use: names of a package, so that importing it costs nothing; NumPy and SciPy's special functions.

The latter are for modules that commands without arithmetic load too (`show`, `--help`); building a tree of variability needs none
of SciPy, and `check` answers sooner.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any


def lazy_names(package: str, home: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names live in its modules.

    Args:
        package: its `__name__`.
        home: name -> module below the package that defines it; empty where the name is itself such a module.
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home[name]:
            return import_module(f".{name}", package)
        return getattr(import_module(f".{home[name]}", package), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *home})


class LazyModule:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self._name), name)
        setattr(self, name, value)  # the next use finds it without coming here
        return value


if TYPE_CHECKING:
    import numpy as np
    import scipy.special as special
else:
    np, special = LazyModule("numpy"), LazyModule("scipy.special")

__all__ = ["np", "special"]
