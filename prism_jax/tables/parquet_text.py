"""Tables in CSV or parquet as the text of a CSV, so that both are read, bounded and refused by the same rules."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..core.errors import DataError
from ..core.read_file import open_input
from .csv_rows import MAX_BYTES, MAX_COLUMNS, MAX_ROWS, read_packed_text
from .streams import PARQUET, head
from .yaml_toml import flow

BATCH_ROWS = 1000


def read_table_text(file: Path, what: str) -> str:
    """The text of a table in CSV, packed by gzip or not, or what a table in parquet is as one.

    Args:
        what: what should be given instead, for messages: "a table of jobs in CSV or parquet".

    Raises:
        DataError: no regular file, it cannot be read, is too large, or is neither.
    """
    if not _is_parquet(file):
        return read_packed_text(file, what)
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\n").writerow
    for row in _rows(file, what):
        write(row)
        if text.tell() > MAX_BYTES:
            raise DataError(f"{file}: more than {MAX_BYTES >> 20} MiB of text. Split the table.")
    return text.getvalue()


def first_line(file: Path) -> str:
    """The header of a table in CSV or parquet.

    Raises:
        DataError: it cannot be read.
    """
    if not _is_parquet(file):
        return head(file).decode("utf-8", "replace").partition("\n")[0]
    return ",".join(next(_rows(file, "a table")))


def _is_parquet(file: Path) -> bool:
    """Tells Parquet by its first bytes; whoever reads it says what else is wrong with it."""
    try:
        with open_input(file) as opened:
            return opened.read(len(PARQUET)) == PARQUET
    except DataError:
        return False


def _rows(file: Path, what: str) -> Iterator[list[str]]:
    """Names of columns, then rows of texts."""
    try:
        yield from _cells(file)
    except MemoryError:
        raise DataError(f"{file}: needs more memory than there is. Split the table.") from None
    except (pa.ArrowException, OSError, RecursionError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200].rstrip(".")
        raise DataError(f"{file}: no parquet file that can be read: {reason}. Give {what}.") from None


def _cells(file: Path) -> Iterator[list[str]]:
    """Yields the cells; of a text that many rows share one copy is held at a time, whatever it is packed to in the file."""
    with pq.ParquetFile(file) as table:
        schema, found = table.schema_arrow, table.metadata
    size = sum(found.row_group(one).total_byte_size for one in range(found.num_row_groups))
    if found.num_rows > MAX_ROWS or len(schema.names) > MAX_COLUMNS or size > MAX_BYTES:
        raise DataError(
            f"{file}: {found.num_rows:,} rows of {len(schema.names):,} columns, at most {MAX_ROWS:,} of {MAX_COLUMNS:,} and "
            f"{MAX_BYTES >> 20} MiB are read. Split the table."
        )
    yield schema.names
    texts = [one.name for one in schema if pa.types.is_string(one.type) or pa.types.is_binary(one.type)]
    with pq.ParquetFile(file, read_dictionary=texts) as table:
        for batch in table.iter_batches(BATCH_ROWS):
            for at in range(batch.num_rows):
                yield [_text(_value(name, one[at])) for name, one in zip(schema.names, batch.columns, strict=True)]


def _value(name: str, cell: pa.Scalar) -> Any:
    """Raises:
    ValueError: Python has no such value: a year of a million, a clock of a place that nobody knows.
    """
    try:
        return cell.as_py()
    except (pa.ArrowException, ArithmeticError, LookupError, ValueError) as error:
        raise ValueError(f"column {name}: {error}") from None


def _text(value: Any) -> str:
    """A cell as a CSV has it; nothing where nothing is said. Whole numbers of columns with gaps are floats there."""
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if isinstance(value, float) and isfinite(value) and value == int(value) and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return value.isoformat()[:10]
    return flow(value) if isinstance(value, (list, dict)) else str(value)
