"""Reads columns of recorded ops from CSV, gzipped or not, block by block in their final types, checked as they arrive."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Ints
from ..core.errors import DataError
from ..core.registry import did_you_mean
from ..tables.csv_rows import is_plain
from ..tables.document import short
from ..tables.streams import lines
from .trace import NONE, NUMBERS, TEXTS, OpTable, check_columns

MAX_ROWS = 8_000_000  # of any format: reading, laying out and predicting take 160 to 200 bytes a row, 2 GB in all
FEWER = "Cut the trace to fewer steps, or to fewer data-parallel ranks."
MAX_TEXT = 200  # characters of a name
MAX_NAMES = 1_000_000  # distinct names of a column

Place = Callable[[int], str]
_DEFAULTS = {"dp": 0, "pp": 0, "tp": 0, "micro_batch": NONE, "chunk": NONE, "rank": NONE}


class FileColumn(NamedTuple):
    """A column of a file.

    Attributes:
        name: in the file.
        field: of `OpRow`.
        kind: what it holds.
        default: where the column is absent; None means that it must be there.
    """

    name: str
    field: str
    kind: Literal["int", "float", "text"]
    default: int | str | None = None

    @property
    def about(self) -> str:
        """Kind of its values, for people."""
        kind = {"int": "whole number", "float": "number", "text": "text"}[self.kind]
        return f"required: {kind}" if self.default is None else kind


def check_header(found: Sequence[str], columns: Sequence[FileColumn], place: str, *, extra: bool) -> None:
    """Whether a file has the columns that are needed, each once, and (unless `extra`) no others.

    Raises:
        DataError: names the column and those that are known.
    """
    known = [column.name for column in columns]
    seen: set[str] = set()
    for name in found:
        if name in seen and (name in known or not extra):
            raise DataError(f"{place}: the column {short(name)} is there twice. Keep one.")
        seen.add(name)
        if name not in known and not extra:
            raise DataError(f"{place} {short(name)}: unknown column{did_you_mean(name, known)}")
    needed = [column.name for column in columns if column.default is None]
    if missing := [name for name in needed if name not in seen]:
        raise DataError(f"{place}: the column {missing[0]} is missing; needed are {', '.join(needed)}")


class OpColumns:
    """Blocks of rows on their way to an `OpTable`.

    Args:
        source: the file, for messages.
        columns: of the file; messages use their names.
    """

    def __init__(self, source: str, columns: Sequence[FileColumn]) -> None:
        self.source = source
        self._names = {column.field: column.name for column in columns}
        self._blocks: dict[str, list[NDArray]] = {}
        self._codes: dict[str, dict[str, int]] = {name: {} for name in TEXTS}
        self._n_rows = 0

    def __len__(self) -> int:
        return self._n_rows

    def add(self, block: dict[str, NDArray], at: Place) -> None:
        """Appends rows: field -> numbers, or codes from `encode`; `at` names the place of a row of the block.

        Raises:
            DataError: a number that no trace contains, or too many rows.
        """
        self._n_rows += len(block["step"])
        if self._n_rows > MAX_ROWS:
            raise DataError(
                f"{self.source}: more than {MAX_ROWS:,} rows, which is what fits into 2 GB of memory. {FEWER}"
            )
        floats = {name: values.astype(np.float64) for name, values in block.items() if NUMBERS.get(name) is np.float64}
        block = {**block, **floats}  # half precision cannot even be compared with the limits
        check_columns(self.source, block, at=at, names=self._names)
        for name, values in block.items():
            self._blocks.setdefault(name, []).append(values.astype(NUMBERS.get(name, np.int32)))

    def encode(self, field: str, texts: Sequence[str], at: Place) -> Ints:
        """A number for every text, the same for equal texts of all blocks."""
        codes = self._codes[field]
        before = len(codes)
        result = np.array([codes.setdefault(text, len(codes)) for text in texts], dtype=np.int32)
        if len(codes) > before:
            self._check_texts(field, texts, result >= before, at)
        return result

    def _check_texts(self, field: str, texts: Sequence[str], new: NDArray[np.bool_], at: Place) -> None:
        name = self._names.get(field, field)
        for row in np.flatnonzero(new).tolist():
            text = texts[row]
            if len(text) > MAX_TEXT:
                raise DataError(f"{at(row)} {name}: {short(text)} is longer than {MAX_TEXT} characters")
            if not text.isprintable():
                raise DataError(f"{at(row)} {name}: {short(text)} holds characters that cannot be printed")
            if field == "op_type" and not text.strip():
                raise DataError(f"{at(row)} {name}: is empty. Name the kind of work.")
        if len(self._codes[field]) > MAX_NAMES:
            raise DataError(f"{self.source}: more than {MAX_NAMES:,} different values of {name}")

    def table(self) -> OpTable:
        """The table of all rows; may be asked for once.

        Raises:
            DataError: there is no row.
        """
        if self._n_rows == 0:
            raise DataError(f"{self.source}: no recorded ops. Record at least a few steps.")
        columns: dict[str, Any] = {name: self._column(name) for name in NUMBERS}
        for name in TEXTS:
            columns[name], columns[f"{name}s"] = self._text_column(name)
        unnamed = np.array([name == "" for name in columns["groups"]])
        columns["group"] = np.where(unnamed[columns["group"]], NONE, columns["group"]).astype(np.int32)
        return OpTable(source=self.source, **columns)

    def _column(self, name: str) -> NDArray:
        blocks = self._blocks.pop(name, None)
        if blocks is None:
            return np.broadcast_to(np.array(_DEFAULTS[name], dtype=NUMBERS[name]), self._n_rows)  # takes no memory
        return np.concatenate(blocks)

    def _text_column(self, name: str) -> tuple[Ints, tuple[str, ...]]:
        """Codes and names, the names in alphabetical order; one empty name where the column is absent."""
        blocks = self._blocks.pop(name, None)
        if blocks is None:
            return np.broadcast_to(np.int32(0), self._n_rows), ("",)
        names = list(self._codes[name])
        order = sorted(range(len(names)), key=names.__getitem__)
        place = np.empty(len(names), dtype=np.int32)
        place[order] = np.arange(len(names), dtype=np.int32)
        return place[np.concatenate(blocks)], tuple(names[index] for index in order)


BLOCK_ROWS = 20_000


def read_columns(path: Path, columns: Sequence[FileColumn]) -> OpColumns:
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


def _convert(column: FileColumn, texts: Sequence[str], found: OpColumns, at: Place) -> NDArray:
    if column.kind == "text":
        return found.encode(column.field, [text.strip() for text in texts], at)
    if column.kind == "int":
        return _numbers(column, texts, int, np.int64, "a whole number", at)
    return _numbers(column, texts, float, np.float64, "a number", at)


def _numbers(
    column: FileColumn, texts: Sequence[str], read: Callable[[str], float], dtype: type, kind: str, at: Place
) -> NDArray:
    try:
        if is_plain("".join(texts)):
            return np.array(list(map(read, texts)), dtype=dtype)
    except (ValueError, OverflowError):
        pass  # told of the value itself, below
    values = [_number(column, text, read, kind, at, row) for row, text in enumerate(texts)]
    return np.array(values, dtype=dtype)


def _number(column: FileColumn, text: str, read: Callable[[str], float], kind: str, at: Place, row: int) -> float:
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
