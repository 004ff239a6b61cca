"""Reliability presets by name; `presets/reliability.toml` holds what was counted, and where."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..system.names import NameTable, load_toml
from .reliability import Reliability
from .reliability_section import reliability_from_dict

_PACKAGE = __name__.rpartition(".")[0]


@cache
def _entries() -> dict[str, dict[str, Any]]:
    return load_toml(_PACKAGE, "reliability.toml")


@cache
def _table() -> NameTable:
    return NameTable("reliability preset", dict.fromkeys(_entries(), ()), " Or name a YAML or TOML file.")


def preset_names() -> tuple[str, ...]:
    """Names of all presets."""
    return _table().names


def known_preset(text: str) -> str | None:
    """Name of the preset that `text` means; None if there is none."""
    return _table().known(text)


@cache
def preset(name: str) -> Reliability:
    """The preset of that name.

    Raises:
        SpecError: no such preset; the message names the nearest.
    """
    found = _table().find(name)
    return reliability_from_dict(_entries()[found], name=found)
