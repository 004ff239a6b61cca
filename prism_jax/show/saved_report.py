"""Opens reports saved as JSON, and shows them as they were shown when they were made: as text, a picture or one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ..core.errors import DataError
from ..core.page import Block, Group
from ..core.read_file import parse_json, read_text
from ..core.report import SCHEMA, Json, Report
from ..core.use_case import Argument, use_case
from .reports import REPORTS

MOST_BYTES = 256 * 2**20
REMEDY = "Give a file that a command wrote with --json or -o."


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


def report_of(data: Any, name: str = "") -> Report:
    """The report of JSON data, of whatever kind.

    Args:
        name: of the file, for errors.

    Raises:
        DataError: no report, of a kind or version that this package does not know, or damaged.
    """
    place = f"{name}: " if name else ""
    schema = data.get(SCHEMA) if isinstance(data, dict) else None
    if not isinstance(schema, str) or schema.count("/") != 2:
        raise DataError(
            f'{place}no report of prism-jax: it has no "{SCHEMA}" such as "prism-jax/prediction/1". {REMEDY}'
        )
    _, kind, version = schema.split("/")
    if kind not in REPORTS:
        raise DataError(f"{place}schema {schema}: this version of prism-jax knows no such report. Use a later one.")
    own = REPORTS.named(kind)
    if version != str(own.version):
        later = version.isdigit() and int(version) > own.version
        remedy = "Open it with a later version" if later else "Open it with the version that wrote it"
        wrote = ((data.get("record") or {}).get("versions") or {}).get("prism-jax", "")
        raise DataError(
            f"{place}schema {schema}, but this version reads {own.schema()}. {remedy}{wrote and f', {wrote}'}."
        )
    try:
        return own.from_dict(data)
    except DataError as error:
        raise DataError(f"{place}{error}") from None


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
    saved = {str(path): parse_json(read_text(path, MOST_BYTES, REMEDY), str(path)) for path in (file, other or file)}
    opened = [report_of(data, name) for name, data in saved.items()]
    return opened[0] if other is None else SavedReports((saved[str(file)], saved[str(other)]))
