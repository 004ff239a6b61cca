"""A catalogue as text."""

from __future__ import annotations

from ..types.catalogue import CatalogueReport
from .table import Table


def lines(report: CatalogueReport) -> list[str]:
    """The report, line by line."""
    return table(report).lines()


def table(report: CatalogueReport) -> Table:
    """One row per entry."""
    return Table("", report.columns, report.rows)
