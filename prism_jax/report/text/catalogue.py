"""A catalogue as text."""

from __future__ import annotations

from ..table import Table
from ..types.catalogue import CatalogueReport


def lines(report: CatalogueReport) -> list[str]:
    """The report, line by line."""
    return table(report).lines()


def table(report: CatalogueReport) -> Table:
    """One row per entry."""
    return Table("", report.columns, report.rows)
