"""Reads rows of a CSV table, gzipped or not by its content, with the line they end on, and their fields, in bounded memory.

Lines end in LF, CRLF or CR, and nowhere else; a field in quotes may hold any of them. Between the columns stand commas, or where
the header has none, semicolons, bars or tabs. Columns may stand in any order; a space after a separator does not belong to the
field; empty rows are passed over.

Numbers are digits of ASCII, where Python would also take underscores and the digits of other scripts; counts are whole numbers
up to the largest that makes sense; times are numbers, times of day or durations; blank fields are None. Errors name row and
field; rows that cannot be used may be counted (`BadRows`) instead of ending a file.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import DataError
from ..core.read_file import read_text
from .document import short

MAX_CHARACTERS = 100
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def number_of(text: str) -> float:
    """The number that a text spells; NaN where it spells none, "nan" and "inf" included. Too large a number is infinite."""
    text = text.strip()
    return float(text) if len(text) <= MAX_CHARACTERS and _NUMBER.fullmatch(text) else math.nan


def is_plain(text: str) -> bool:
    """Whether `float` and `int` read from a text, or from several joined, only what all tools would read from it."""
    return text.isascii() and "_" not in text


MAX_BYTES = 1 << 26  # of text, unpacked; a hundred thousand rows of the longest tables have 60 MB


def read_packed_text(file: Path, what: str) -> str:
    """The text of `file`.

    Args:
        what: what should be given instead, for messages: "a steps table in JSON or CSV".

    Raises:
        DataError: no regular file, it cannot be read, is too large, or is neither text nor a complete gzip file.
    """
    return read_text(file, MAX_BYTES, f"Give {what}.", unpack=True)


MAX_ROWS = 100_000
MAX_LINES = 1_000_000  # empty ones included
MAX_COLUMNS = 1_000
MAX_ROW_CHARACTERS = 1 << 20
_LINE = re.compile(r"[^\r\n]++(?:\r\n|[\r\n])?|\r\n|[\r\n]")


def separator_of(header: str) -> str:
    """Separator between the columns of a header: a comma, or without one the most frequent of `;`, `|` and tab."""
    others = max(";|\t", key=header.count)
    return others if "," not in header and others in header else ","


NAMED_ROWS = 3  # of those that cannot be used


class BadRows:
    """Counts rows that are left out.

    Args:
        name: of the file, as it begins the messages of its rows.
    """

    def __init__(self, name: object) -> None:
        self.name, self.n = str(name), 0
        self._first: list[str] = []

    def add(self, error: DataError) -> None:
        """Counts a row, with what is wrong with it."""
        self.n += 1
        if self.n <= NAMED_ROWS:
            self._first.append(str(error))

    def check(self, n_good: int) -> None:
        """Whether a file is what it is taken for.

        Raises:
            DataError: as many rows are bad as good; names the first.
        """
        if self.n and self.n >= n_good:
            more = f". {self.n - 1:,} more rows are bad." if self.n > 1 else ""
            raise DataError(f"{self._first[0].rstrip('.') if more else self._first[0]}{more}")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the rows that were left out."""
        if self.n == 0:
            return ()
        rows = "1 row is" if self.n == 1 else f"{self.n:,} rows are"
        places = [one.removeprefix(self.name).lstrip(": ") for one in self._first]
        first = "; ".join(f"line {place}" if place[:1].isdigit() else place for place in places)
        return (f"{rows} left out: {first}{'; ...' if self.n > NAMED_ROWS else ''}",)


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
        self._separator = separator_of(text[:MAX_ROW_CHARACTERS].lstrip().partition("\n")[0])
        self._reader = csv.reader(self._lines, strict=True, skipinitialspace=True, delimiter=self._separator)
        self.columns = tuple(self._next() or ())
        self._check_columns()

    def place(self, line: int) -> str:
        """Name of a line in messages."""
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

    def rows(self, bad: BadRows | None = None) -> Iterator[CsvRow]:
        """The rows; may be asked for once.

        Args:
            bad: counts rows of another length than the header; without it the first of them is an error.
        """
        n_rows = 0
        while (row := self._next()) is not None:
            n_rows += 1
            if n_rows > self.max_rows:
                raise DataError(f"{self.name}: more than {self.max_rows:,} rows. Split the table.")
            if len(row) != len(self.columns):
                error = DataError(
                    f"{self.place(self._reader.line_num)}: the number of fields differs from the header's ({len(row):,} and "
                    f"{len(self.columns):,}). Quote fields that hold {self._separator!r}."
                )
                if bad is None:
                    raise error
                bad.add(error)
                continue
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


def whole_number(value: float, told: object, high: int | None, where: str) -> int:
    """A number of a table as an integer.

    Args:
        value: the number; NaN for what is none.
        told: as it stands in the table, for messages.
        high: the largest that makes sense; None for no end.
        where: row and field, for messages.

    Raises:
        DataError: not a whole number from 0 to `high`.
    """
    if not math.isfinite(value) or value != int(value):
        raise DataError(f"{where} = {short(told)} is not a whole number")
    if value < 0:
        raise DataError(f"{where} = {short(told)}, but it must not be negative")
    if high is not None and value > high:
        raise DataError(f"{where} = {short(told)}, but at most {high:,} can be simulated")
    return int(value)


# --- Times -----------------------------------------------------------------------------------------------------------

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "seconds"), 1.0),
    "ms": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    **dict.fromkeys(("min", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hours"), 3600.0),
    **dict.fromkeys(("d", "days"), 86_400.0),
}
_CLOCK = re.compile(r"(?:(\d{1,5})(?:-| days?,? ))?(\d{1,6}):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?")
_SLASHES = re.compile(r"(\d{4})/(\d\d?)/(\d\d?)")
MAX_TIME_CHARACTERS = 60


def seconds_of_text(text: str) -> float:
    """Seconds that a text spells; NaN where it spells none.

    A number is seconds; "2020-04-01 00:00:10" and ISO 8601 are seconds since 1970 (UTC where no zone is said); "01:02:03",
    "1-02:03:04" and "1 day, 02:03:04" are durations, "02:03" minutes and seconds.
    """
    text = text.strip()
    number = number_of(text)
    if not math.isnan(number) or len(text) > MAX_TIME_CHARACTERS:
        return number
    duration = _CLOCK.fullmatch(text)
    if duration is not None:
        days, first, second, third = duration.groups()
        parts = (first, second, third) if third is not None else ("0", first, second)
        hours, minutes, seconds = map(float, parts)
        return 86_400.0 * float(days or 0) + 3600.0 * hours + 60.0 * minutes + seconds
    try:
        found = datetime.fromisoformat(_SLASHES.sub(lambda d: f"{d[1]}-{int(d[2]):02d}-{int(d[3]):02d}", text))
    except ValueError:
        return math.nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


# --- Fields ----------------------------------------------------------------------------------------------------------

_BOOLEANS = {"true": True, "false": False}


def number_field(value: Any, field: str, where: str) -> float | None:
    """A number that is not negative, or None for blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number = _parsed(value)
    if math.isnan(number):
        raise DataError(f"{where}: {field} = {short(value)} is not a number. Leave it blank if it is unknown.")
    if not 0.0 <= number < math.inf:
        raise DataError(f"{where}: {field} = {short(value)}, but it must be finite and not negative")
    return number


def seconds_field(value: Any, field: str, where: str) -> float | None:
    """Seconds of a step, or None for blank."""
    number = number_field(value, field, where)
    if number == 0.0:
        raise DataError(
            f"{where}: {field} = {short(value)}, but no step takes no time. Leave it blank if it is unknown."
        )
    return number


def integer_field(value: Any, field: str, where: str) -> int | None:
    """A whole number that is not negative, or None for blank."""
    if number_field(value, field, where) is None:
        return None
    return whole_number(_parsed(value), value, None, f"{where}: {field}")


def boolean_field(value: Any, field: str, where: str) -> bool | None:
    """True or false, or None for blank."""
    if value is None or value == "":
        return None
    told = str(value).strip().lower() if isinstance(value, (str, bool)) else ""
    if told not in _BOOLEANS:
        raise DataError(f"{where}: {field} = {short(value)}, but it must be true or false")
    return _BOOLEANS[told]


def _parsed(value: Any) -> float:
    """A number, or a text that spells one; NaN for what is neither."""
    if isinstance(value, str):
        return number_of(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def cell(value: Any) -> Any:
    """A value of a table that is written; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULA) and math.isnan(number_of(value))
    return f"'{value}" if is_formula else value
