"""Tables as plain data, and as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Rows under headings; `title` may be empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def is_numeric(self, index: int) -> bool:
        """Whether a column holds numbers, which are aligned right; the first one names the rows."""
        cells = [row[index] for row in self.rows if row[index]]
        return index > 0 and bool(cells) and all(cell[0].isdigit() or cell[0] in "-+" for cell in cells)

    def lines(self) -> list[str]:
        """The table as text."""
        widths = [max(map(len, (name, *(row[i] for row in self.rows)))) for i, name in enumerate(self.columns)]
        numeric = [self.is_numeric(index) for index in range(len(self.columns))]

        def line(cells: Sequence[str]) -> str:
            padded = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(cells, widths, numeric, strict=True))
            return (" " + "   ".join(padded)).rstrip()

        rule = " " + "─" * (sum(widths) + 3 * (len(widths) - 1))
        head = [self.title] if self.title else []
        return [*head, "", line(self.columns), rule, *map(line, self.rows), ""]


@dataclass(frozen=True)
class Facts:
    """Names and values of one thing.

    Attributes:
        has_paragraphs: whether values are descriptions of the package, whose line ends are kept.
    """

    title: str
    facts: Mapping[str, str]
    has_paragraphs: bool = False

    def lines(self) -> list[str]:
        """The facts as text, one per line."""
        width = max(map(len, self.facts), default=0)
        return [self.title, *(f"{name:<{width}}  {value}".rstrip() for name, value in self.facts.items())]
