"""Columns of a parquet file, read in batches: memory is bounded by the batch and by the numbers that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ..core.errors import DataError
from . import columns as op_columns
from .columns import FileColumn, OpColumns, Place, check_header

BATCH_ROWS = 65_536
MAX_BYTES_PER_ROW = 200  # uncompressed, of one column on average
SPARE_BYTES = 2**26


def column_names(path: Path) -> list[str]:
    """Names of the top-level columns, from the metadata alone.

    Raises:
        DataError: not a whole parquet file.
    """
    with _reading(path), pq.ParquetFile(path) as file:
        return list(file.schema_arrow.names)


def read_columns(path: Path, columns: Sequence[FileColumn], *, extra: bool) -> OpColumns:
    """The rows of `path`; other columns are an error unless `extra`, and are never read.

    Raises:
        DataError: not parquet, truncated, too many rows, a column that is missing or of the wrong type, an empty value, a
            number that no trace contains.
    """
    found = OpColumns(str(path), columns)
    for batch in checked_batches(path, columns, op_columns.MAX_ROWS, op_columns.FEWER, extra=extra):
        _add(batch, [column for column in columns if column.name in batch.schema.names], found, path, len(found))
    return found


def checked_batches(
    path: Path,
    columns: Sequence[FileColumn],
    max_rows: int,
    remedy: str,
    *,
    extra: bool,
    file: BinaryIO | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of `path` in batches with those of `columns` that it has, as many as its metadata promises.

    Args:
        max_rows: how many rows are read at most.
        remedy: a sentence for files that have more.
        extra: whether other columns are allowed; they are never read.
        file: the content, where `path` is the archive that it comes from.

    Raises:
        DataError: as `read_columns`, but values are not looked at.
    """
    with _reading(path), pq.ParquetFile(file or path) as found:
        schema, metadata = found.schema_arrow, found.metadata
    if metadata.num_rows > max_rows:
        raise DataError(
            f"{path}: {metadata.num_rows:,} rows, but at most {max_rows:,} are read, which is what fits into 2 GB of "
            f"memory. {remedy}"
        )
    check_header(schema.names, columns, str(path), extra=extra)
    wanted = [column for column in columns if column.name in schema.names]
    for column in wanted:
        _check_type(column, schema.field(column.name).type, path)
    _check_size(metadata, path)
    n_rows = 0
    for batch in _batches(path, wanted, file or path):
        n_rows += batch.num_rows
        yield batch
    if n_rows != metadata.num_rows:
        raise DataError(f"{path}: {n_rows:,} rows, but its metadata promises {metadata.num_rows:,}. Export it again.")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns any error inside into one that blames the file."""
    try:
        yield
    except DataError:
        raise
    except MemoryError:
        raise DataError(f"{path}: needs more memory than there is. Cut the trace.") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, RecursionError) as error:
        first = (str(error).splitlines() or [""])[0][:200].rstrip(".")
        reason = "".join(character if character.isprintable() else "?" for character in first)
        raise DataError(f"{path}: not a whole parquet file: {reason}. Export or copy it again.") from None


def _check_type(column: FileColumn, kind: pa.DataType, path: Path) -> None:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    good = {
        "int": pa.types.is_integer(kind),
        "float": pa.types.is_floating(kind) or pa.types.is_integer(kind),
        "text": pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value),
    }
    if not good[column.kind]:
        needed = {"int": "whole numbers (int)", "float": "numbers (float or double)", "text": "text (string)"}
        raise DataError(f"{path} {column.name}: holds {str(kind)[:60]}, but it must hold {needed[column.kind]}")


def _check_size(metadata: pq.FileMetaData, path: Path) -> None:
    """Stops before a small file unpacks to something huge.

    Sizes of single columns would be sharper, but pyarrow ends the process when it looks at those of some damaged files.
    """
    with _reading(path):
        n_bytes = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    if n_bytes > SPARE_BYTES + MAX_BYTES_PER_ROW * metadata.num_columns * metadata.num_rows:
        raise DataError(
            f"{path}: {n_bytes:,} bytes of values in {metadata.num_rows:,} rows, far more than a trace has. "
            "Keep only the columns of the trace."
        )


def _batches(path: Path, wanted: Sequence[FileColumn], content: BinaryIO | Path) -> Iterator[pa.RecordBatch]:
    texts = [column.name for column in wanted if column.kind == "text"]  # kept as codes, however often a text repeats
    with _reading(path), pq.ParquetFile(content, read_dictionary=texts, buffer_size=2**20) as file:
        yield from file.iter_batches(BATCH_ROWS, columns=[column.name for column in wanted])


def _add(batch: pa.RecordBatch, wanted: Sequence[FileColumn], found: OpColumns, path: Path, first: int) -> None:
    def at(row: int) -> str:
        return f"{path}: row {first + row + 1}"

    block: dict[str, NDArray] = {}
    for column in wanted:
        values = batch.column(column.name)
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(f"{at(row)} {column.name}: is empty")
        if column.kind == "text":
            block[column.field] = _codes(values, column, found, path, at)
        else:
            block[column.field] = values.to_numpy(zero_copy_only=False)
    found.add(block, at)


def _codes(values: pa.Array, column: FileColumn, found: OpColumns, path: Path, at: Place) -> NDArray:
    with _reading(path):  # a damaged file may hold codes without a text
        coded = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        indices = coded.indices.to_numpy(zero_copy_only=False)
        used, first, place = np.unique(indices, return_index=True, return_inverse=True)
        try:
            texts = coded.dictionary.take(pa.array(used)).to_pylist()
        except UnicodeDecodeError:
            raise DataError(f"{path} {column.name}: holds text that is not UTF-8") from None
    if None in texts:
        raise DataError(f"{at(int(first[texts.index(None)]))} {column.name}: is empty")
    return found.encode(column.field, texts, lambda row: at(int(first[row])))[place]
