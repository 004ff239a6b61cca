"""Opens reports saved as JSON, and shows them as they were shown when they were made: as text, a picture or one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from ..core.page import Block, Group
from ..core.read_file import parse_json, read_text
from ..core.report import Json, Report
from ..core.use_case import Argument, use_case
from .reports import REMEDY, report_of

MOST_BYTES = 256 * 2**20


@dataclass(frozen=True)
class SavedReports(Report):
    """Several saved reports next to each other.

    Attributes:
        reports: as they were saved.
    """

    kind: ClassVar[str] = "reports"

    reports: tuple[Json, ...]

    def blocks(self) -> Sequence[Block]:
        return tuple(_group(report) for report in self.opened)

    @property
    def opened(self) -> tuple[Report, ...]:
        """The reports."""
        return tuple(report_of(data) for data in self.reports)

    def to_html(self, *others: Report) -> str:
        first, *rest = self.opened
        return first.to_html(*rest, *others)


def _group(report: Report) -> Group:
    page = report.page()
    return Group(report.kind, page.blocks if page.card is None else [page.card.as_group(), *page.blocks])


@use_case()
def open_reports(
    file: Annotated[str | Path, Argument(metavar="FILE")],
    other: Annotated[str | Path | None, Argument(metavar="OTHER")] = None,
) -> Report:
    """Open a saved report, or two next to each other, as text, a picture or one HTML file.

    Args:
        file: a report that a command wrote with --json or -o.
        other: another one, shown next to it.

    Raises:
        DataError: a file cannot be read or is no report.

    Example:
        >>> open_reports("prediction.json").to_html()  # doctest: +SKIP
    """
    saved = {
        str(path): parse_json(read_text(path, MOST_BYTES, REMEDY), str(path), REMEDY) for path in (file, other or file)
    }
    opened = [report_of(data, name) for name, data in saved.items()]
    return opened[0] if other is None else SavedReports((saved[str(file)], saved[str(other)]))
