"""Tables as text: CSV with comma, semicolon or tab, packed or not, read in pieces."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prism_jax.errors import DataError
from prism_jax.io.traces.streams import CHUNK_BYTES

from .packed import Unpacked, first_bytes
from .raw_table import MAX_COLUMNS, MAX_ROWS, RawTable, hash_rows

ROWS_AT_ONCE = 500_000
HEAD_BYTES = 2**20
SEPARATORS = ",\t;"
NOT_AVAILABLE = ("[N/A]", "[Not Supported]", "Not Supported", "[Unknown Error]", "-", "--")
PROFILER_NAMES = frozenset(("kShortName", "kDemangledName", "Kernel Name", "Demangled Name", "gpu__time_duration.sum"))
"""Names of columns in what Nsight Compute and Nsight Systems export, which give times in ns."""

_EXACT: dict[str, Any] = {} if int(pd.__version__.partition(".")[0]) >= 3 else {"float_precision": "round_trip"}
"""Numbers to the last digit, which pandas 3 always gives."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_QUOTE = "Quote fields that hold the separator."

Choose = Callable[[Sequence[str]], list[str]]


def read_delimited(path: Path, choose: Choose) -> RawTable:
    """The table in a text file.

    Args:
        choose: of the names in the header, those to keep.

    Raises:
        DataError: cannot be read, not UTF-8, no header, no rows, too many columns, or a row with more fields than the header.
    """
    source = str(path)
    separator, names = _header(path)
    if len(names) > MAX_COLUMNS:
        raise DataError(f"{source}:1: {len(names):,} columns, more than {MAX_COLUMNS:,}. Keep those that matter.")
    unique = _unique(names)
    keep = choose(unique)
    named = [name for name, written in zip(unique, names, strict=True) if written]  # without a name: numbers of rows
    pieces, hashes, n_rows = [], [], 0
    for piece in _pieces(path, separator, unique):
        n_rows += len(piece)
        if n_rows > MAX_ROWS:
            raise DataError(f"{source}: more than {MAX_ROWS:,} rows. Split it.")
        hashes.append(hash_rows(piece, named))
        pieces.append(piece[keep])
    if n_rows == 0:
        raise DataError(f"{source}: a header and no rows. Export the measurements again.")
    frame = pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
    assumed = "ns" if PROFILER_NAMES & set(names) else ""
    return RawTable(source, frame, tuple(names), np.concatenate(hashes), assumed_unit=assumed)


def header_of(path: Path) -> list[str]:
    """The names in a table's first line.

    Raises:
        DataError: as `read_delimited`.
    """
    return _header(path)[1]


def separator_of(line: str) -> str:
    """What stands between the fields of a line; a comma if nothing does."""
    return max(SEPARATORS, key=line.count)


def _header(path: Path) -> tuple[str, list[str]]:
    start = first_bytes(path, HEAD_BYTES)
    try:
        text = start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(start) - 4:  # not just a character cut in two
            line = start.count(b"\n", 0, error.start) + 1
            raise DataError(f"{path}:{line}: not UTF-8 text. Save the table as UTF-8.") from None
        text = start.decode("utf-8-sig", "ignore")
    lines = _LINE_END.split(text.lstrip("\r\n"), maxsplit=1)
    if not lines or not lines[0].strip():
        raise DataError(f"{path}: the file is empty. Export the measurements again.")
    if len(lines) == 1 and len(start) >= HEAD_BYTES:
        raise DataError(f"{path}:1: a line of more than {HEAD_BYTES:,} bytes, which is no header. Is it a table?")
    separator = separator_of(lines[0])
    try:
        names = [name.strip() for name in next(csv.reader([lines[0]], delimiter=separator))]
    except (csv.Error, StopIteration):
        raise DataError(f"{path}:1: not a header of names separated by commas, semicolons or tabs") from None
    return separator, names


def _unique(names: Sequence[str]) -> list[str]:
    """The names; those that were there before, and those that are empty, get a number."""
    seen: dict[str, int] = {}
    unique = []
    for index, name in enumerate(names, start=1):
        seen[name] = seen.get(name, 0) + 1
        unique.append(f"column {index}" if not name else name if seen[name] == 1 else f"{name} [again: {seen[name]}]")
    return unique


def _pieces(path: Path, separator: str, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    raw = Unpacked(path)
    try:
        with warnings.catch_warnings(), io.BufferedReader(raw, CHUNK_BYTES) as stream:
            warnings.simplefilter("error", pd.errors.ParserWarning)
            yield from pd.read_csv(
                stream,
                sep=separator,
                header=0,
                names=list(names),
                index_col=False,
                encoding="utf-8-sig",
                skipinitialspace=True,
                na_values=list(NOT_AVAILABLE),
                low_memory=False,
                **_EXACT,
                chunksize=ROWS_AT_ONCE,
            )
    except pd.errors.ParserWarning:
        raise DataError(f"{path}: rows with more fields than the {len(names)} of the header. {_QUOTE}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: not UTF-8 text. Save the table as UTF-8.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error, OverflowError, ValueError) as error:
        if raw.failure is not None:
            raise raw.failure from None
        place = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
        if place:
            raise DataError(f"{path}:{place[2]}: {place[3]} fields, but the header has {place[1]}. {_QUOTE}") from None
        reason = str(error).strip().splitlines()[-1][:200] if str(error).strip() else type(error).__name__
        raise DataError(f"{path}: not a readable table: {reason}. Export it again as CSV.") from None
