"""Reports what ships with the package: a catalogue, or one entry of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..core.page import Block, Facts, Table
from ..core.report import Json, Report
from ..core.units import format_named


@dataclass(frozen=True)
class CatalogueReport(Report):
    """All entries of one catalogue.

    Attributes:
        catalogue: models, devices, ...
        columns, rows: the table for people.
        entries: everything known of each, in SI units.
    """

    kind: ClassVar[str] = "catalogue"

    catalogue: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    entries: tuple[Mapping[str, Json], ...]

    def blocks(self) -> Sequence[Block]:
        return (catalogue_table(self),)


@dataclass(frozen=True)
class EntryReport(Report):
    """One entry of a catalogue.

    Attributes:
        entry: everything known of it, in SI units.
    """

    kind: ClassVar[str] = "entry"

    catalogue: str
    name: str
    entry: Mapping[str, Json]

    def blocks(self) -> Sequence[Block]:
        return (entry_facts(self),)


def catalogue_table(report: CatalogueReport) -> Table:
    """One row per entry."""
    return Table("", report.columns, report.rows)


def entry_facts(report: EntryReport) -> Facts:
    """Names and values with units."""
    return Facts(report.name, {name: str(value) for name, value in readable(report.entry).items()})


def readable(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry as flat names and texts: nested names joined by dots, SI numbers with units, empty ones left out."""
    flat: dict[str, Any] = {}
    _flatten(entry, "", flat)
    return {name: value for name, value in flat.items() if value not in ("", None) and name != "name"}


def _flatten(value: Any, name: str, flat: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _flatten(item, f"{name}.{key}" if name else str(key), flat)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _flatten(item, f"{name}.{index}", flat)
    else:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        flat[name] = format_named(name, value) if is_number else value
