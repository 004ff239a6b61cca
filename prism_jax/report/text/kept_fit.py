"""A fit read from a file as lines of plain text."""

from __future__ import annotations

from ..types.fit import KeptFitReport
from .fit import fit_lines, scores


def lines(report: KeptFitReport) -> list[str]:
    """The report, line by line."""
    return [
        *fit_lines(report.fit),
        *scores("fitted rows, replicated", report.checks),
        *scores("leave one out", report.loo),
    ]
