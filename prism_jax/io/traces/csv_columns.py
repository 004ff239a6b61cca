"""Columns of a CSV file, packed with gzip or not, read in blocks of rows."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..job.document import short
from ..numbers import is_plain
from .op_columns import Column, OpColumns, Place, check_header
from .streams import lines

BLOCK_ROWS = 20_000


def read_columns(path: Path, columns: Sequence[Column]) -> OpColumns:
    """The rows of `path`, whose first line names the columns. Empty lines do not count.

    Raises:
        DataError: cannot be read, not UTF-8, not CSV, an unknown, repeated or missing column, a row of another length, a value
            that is not a number or that no trace contains; names file:line and field.
    """
    rows = CsvRows(path)
    header = next(iter(rows), None)
    if header is None:
        raise DataError(f"{path}: the file is empty. Its first line names the columns.")
    names = [name.strip() for name in header]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise DataError(f"{path}:{rows.number}: columns must be separated by commas")
    check_header(names, columns, f"{path}:{rows.number}", extra=False)
    wanted = {column.name: column for column in columns}
    found = OpColumns(str(path), columns)
    while block := list(islice(_numbered(rows, len(names)), BLOCK_ROWS)):
        places = [number for number, _ in block]

        def at(row: int, places: list[int] = places) -> str:
            return f"{path}:{places[row]}"

        texts = dict(zip(names, zip(*(row for _, row in block), strict=True), strict=True))
        found.add({wanted[name].field: _convert(wanted[name], texts[name], found, at) for name in names}, at)
    return found


class CsvRows:
    """Rows of text, and the number of the line that the last one ended on; empty lines are left out.

    Raises:
        DataError: as rows are read: not CSV or not UTF-8; names file:line.
    """

    def __init__(self, path: Path, separator: str = ",") -> None:
        self.path = path
        self.number = 1
        self._rows = csv.reader(self._texts(), strict=True, delimiter=separator)

    def __iter__(self) -> Iterator[list[str]]:
        while True:
            try:
                row = next(self._rows)
            except StopIteration:
                return
            except csv.Error as error:
                raise DataError(f"{self.path}:{self.number}: not CSV: {error}") from None
            if row and (len(row) > 1 or row[0].strip()):
                yield row

    def _texts(self) -> Iterator[str]:
        for number, line in lines(self.path, cut=False):
            self.number = number
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self.path}:{self.number}: not UTF-8 text (byte {error.start} of the line). Save it as UTF-8."
                ) from None
            yield text.lstrip("\ufeff") if self.number == 1 else text


def _numbered(rows: CsvRows, n_columns: int) -> Iterator[tuple[int, list[str]]]:
    for row in rows:
        if len(row) != n_columns:
            raise DataError(
                f"{rows.path}:{rows.number}: {len(row)} fields, but the first line names {n_columns} columns"
            )
        yield rows.number, row


def _convert(column: Column, texts: Sequence[str], found: OpColumns, at: Place) -> NDArray:
    if column.kind == "text":
        return found.encode(column.field, [text.strip() for text in texts], at)
    if column.kind == "int":
        return _numbers(column, texts, int, np.int64, "a whole number", at)
    return _numbers(column, texts, float, np.float64, "a number", at)


def _numbers(
    column: Column, texts: Sequence[str], read: Callable[[str], float], dtype: type, kind: str, at: Place
) -> NDArray:
    try:
        if is_plain("".join(texts)):
            return np.array(list(map(read, texts)), dtype=dtype)
    except (ValueError, OverflowError):
        pass  # told of the value itself, below
    values = [_number(column, text, read, kind, at, row) for row, text in enumerate(texts)]
    return np.array(values, dtype=dtype)


def _number(column: Column, text: str, read: Callable[[str], float], kind: str, at: Place, row: int) -> float:
    """One value the slow way: with empty fields and the place of a mistake."""
    if not text.strip() and column.default is not None:
        return read(str(column.default))
    try:
        value = read(text) if is_plain(text) else None
    except (ValueError, OverflowError):
        value = None
    if value is None:
        raise DataError(f"{at(row)} {column.name}: {short(text)} is not {kind}")
    if read is int and abs(value) >= 2**63:
        raise DataError(f"{at(row)} {column.name}: {short(text)} is too large")
    return value
