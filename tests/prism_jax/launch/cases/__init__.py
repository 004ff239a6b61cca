"""Launch files in the style of public ones, with the sizes that each states: a module per carrier, with `CASES`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from .case import Case


def carriers() -> list[str]:
    """Names of the modules that hold cases."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "case"))


def cases_of(carrier: str) -> list[Case]:
    """Cases of a carrier."""
    return list(import_module(f"{__name__}.{carrier}").CASES)
