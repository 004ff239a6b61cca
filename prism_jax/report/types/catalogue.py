"""CatalogueReport and EntryReport: what ships with the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..codec import Json
from ..report import Report


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

    def lines(self) -> list[str]:
        from ..text.catalogue import lines

        return lines(self)


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

    def lines(self) -> list[str]:
        from ..text.entry import lines

        return lines(self)
