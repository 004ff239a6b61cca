"""Rows of a CSV table whose text is at hand: fields by column, with the line they end on, in bounded memory.

Lines end in LF, CRLF or CR, and nowhere else; a field in quotes may hold any of them. Columns may stand in any order; a space
after a comma is no part of a field; rows in which nothing stands are passed over.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from ...errors import DataError
from ..job.document import short

MAX_ROWS = 100_000
MAX_LINES = 1_000_000  # empty ones included
MAX_COLUMNS = 1_000
MAX_ROW_CHARACTERS = 1 << 20
_LINE = re.compile(r"[^\r\n]++(?:\r\n|[\r\n])?|\r\n|[\r\n]")


class CsvRow(NamedTuple):
    """One row.

    Attributes:
        line: of the file, from 1, on which the row ends.
        fields: column -> text without spaces around it.
    """

    line: int
    fields: dict[str, str]


class CsvTable:
    """The header of a table, and its rows.

    Args:
        text: the whole table.
        name: what messages call it.
        max_rows: how many rows are read at most.
        before_line: what stands between the name and the number of a line in messages.

    Raises:
        DataError: not CSV, a column twice, too many columns, rows or lines, or a row of another length; names the line.
    """

    def __init__(self, text: str, name: str, max_rows: int = MAX_ROWS, before_line: str = " line ") -> None:
        self.name, self.max_rows, self._before_line = name, max_rows, before_line
        n_lines = text.count("\n") + text.count("\r") - text.count("\r\n")
        if n_lines > MAX_LINES:
            raise DataError(
                f"{name}: {n_lines:,} lines, more than {MAX_LINES:,}. Split the table, or remove empty lines."
            )
        self._lines = _Lines(text, self.place)
        self._reader = csv.reader(self._lines, strict=True, skipinitialspace=True)
        self.columns = tuple(self._next() or ())
        self._check_columns()

    def place(self, line: int) -> str:
        """What messages call a line."""
        return f"{self.name}{self._before_line}{line}"

    def _check_columns(self) -> None:
        if len(self.columns) > MAX_COLUMNS:
            raise DataError(
                f"{self.place(1)}: {len(self.columns):,} columns, more than {MAX_COLUMNS:,}. Keep those that matter."
            )
        seen: set[str] = set()
        for column in self.columns:
            if column and column in seen:
                raise DataError(f"{self.place(1)}: the column {short(column)} is there twice. Keep one.")
            seen.add(column)

    def rows(self) -> Iterator[CsvRow]:
        """The rows; may be asked for once."""
        n_rows = 0
        while (row := self._next()) is not None:
            n_rows += 1
            if n_rows > self.max_rows:
                raise DataError(f"{self.name}: more than {self.max_rows:,} rows. Split the table.")
            if len(row) != len(self.columns):
                raise DataError(
                    f"{self.place(self._reader.line_num)}: the number of fields differs from the header's ({len(row):,} and "
                    f"{len(self.columns):,}). Quote fields that hold commas."
                )
            yield CsvRow(self._reader.line_num, dict(zip(self.columns, row, strict=True)))

    def _next(self) -> list[str] | None:
        """The next row in which anything stands, without spaces around its fields; None at the end."""
        try:
            for row in self._reader:
                self._lines.n_characters = 0
                fields = [field.strip() for field in row]
                if any(fields):
                    return fields
        except csv.Error as error:
            raise DataError(f"{self.place(self._lines.number)} is not CSV: {error}") from None
        return None


class _Lines:
    """The lines of a text with their ends, which a reader of rows tells when a row is complete (`n_characters = 0`)."""

    def __init__(self, text: str, place: Callable[[int], str]) -> None:
        self._place = place
        self.number = self.n_characters = 0
        self._found = _LINE.finditer(text)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._found)
        self.number += 1
        self.n_characters += line.end() - line.start()
        if self.n_characters > MAX_ROW_CHARACTERS:
            raise DataError(f"{self._place(self.number)}: a row of more than {MAX_ROW_CHARACTERS:,} characters")
        return line[0]


class Seen:
    """Finds rows that are the same as one before, which would count twice."""

    def __init__(self) -> None:
        self._places: dict[bytes, str] = {}

    def before(self, values: Iterable[str], place: str) -> str:
        """The place of the first row with these values, if it is not this one; else empty."""
        mark = blake2b("\x1f".join(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        before = self._places.setdefault(mark, place)
        return "" if before == place else before

    def check(self, values: Iterable[str], place: str) -> None:
        """Notes a row.

        Raises:
            DataError: the same values stood in a row before; names both.
        """
        if before := self.before(values, place):
            remedy = "Keep one; if both were measured, tell them apart by an id"
            raise DataError(f"{place}: the same row as {before}. {remedy}.")
