"""Reports what ships with the package (a catalogue, or one entry of it), and whether an installation works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..core.page import Block, Card, Facts, Table
from ..core.report import Json, Report, shown
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


State = Literal["ok", "failed", "missing"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: what was looked at.
        state: "ok"; "failed" where predictions will fail; "missing" where something optional is not there.
        value: what was found.
        remedy: what to do; empty where nothing is to be done.
    """

    name: str
    state: State
    value: str
    remedy: str = ""

    @property
    def words(self) -> str:
        """Finding and remedy, in words."""
        return f"{self.value}. {self.remedy}" if self.remedy else self.value


@dataclass(frozen=True)
class DoctorReport(Report):
    """Whether an installation works, and what to do where it does not.

    Attributes:
        release: version of prism-jax.
        python: version of Python.
        system: operating system and processor.
        findings: in the order in which they were looked at.
    """

    kind: ClassVar[str] = "doctor"

    release: str
    python: str
    system: str
    findings: tuple[Finding, ...]

    @shown
    def is_ready(self) -> bool:
        """Whether nothing has failed."""
        return all(finding.state != "failed" for finding in self.findings)

    def card(self) -> Card:
        failed, missing = ([one for one in self.findings if one.state == state] for state in ("failed", "missing"))
        names = ", ".join(one.name for one in failed)
        n = f"{len(failed)} failed, {len(missing)} optional ones missing"
        return Card(
            f"prism-jax {self.release} on Python {self.python}, {self.system}",
            f"Not ready: {names} failed." if failed else "Ready.",
            "bad" if failed else "good",
            facts={one.name: one.words for one in failed or self.findings[:MOST_SHOWN]},
            evidence=f"{len(self.findings)} things looked at, {n}",
            next_step="what stands above" if failed else "prism-jax predict llama3_405b_16384",
        )

    def blocks(self) -> Sequence[Block]:
        rows = [(one.name, one.state, one.words) for one in self.findings]
        return (Table("Findings", ("name", "state", "value"), rows),)


MOST_SHOWN = 4
