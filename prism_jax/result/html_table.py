"""Small HTML tables, for results in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], notes: Sequence[str] = ()) -> str:
    """A table; every text is escaped.

    Args:
        caption: above the table.
        head: headings of the columns.
        rows: texts of the cells.
        notes: sentences below the table.
    """
    parts = [f"<caption>{escape(caption)}</caption>", f"<thead>{_row(head, 'th')}</thead>"]
    parts.append("<tbody>" + "".join(_row(row, "td") for row in rows) + "</tbody>")
    below = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return f"<div><table>{''.join(parts)}</table>{below}</div>"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
