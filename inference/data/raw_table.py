"""Tables as they stand in a file, before names, units and values are checked: CSV with comma, semicolon or tab, and parquet.

Text is unpacked on the way (gzip, zstd), with a limit on what comes out, and read in pieces.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.errors import DataError
from prism_jax.core.read_file import CHUNK_BYTES, MAX_RATIO, SPARE_BYTES, open_input
from prism_jax.recorded.formats.scalar_files import separator_of
from prism_jax.tables.streams import ZSTD, chunks

MAX_COLUMNS = 2000
MAX_ROWS = 100_000_000

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class RawTable:
    """A table as it stands in a file.

    Attributes:
        source: the file, for messages.
        frame: columns under the names of the file, unique; those that no model column can be are left out.
        header: all names of the file, also those left out.
        row_hash: sum over all columns of the file of a hash of the row's value, so that a column can be taken out again.
        units: unit of columns whose names do not say it.
        assumed_unit: unit of durations that say nothing else, because of what kind of file it is.
        is_gpu_log: whether rows are clocks, temperatures and powers over time, without kernels.
        notes: what people should know.
        in_si: whether a stated unit was used already, and values are in SI units.
    """

    source: str
    frame: pd.DataFrame
    header: tuple[str, ...]
    row_hash: Hashes
    units: Mapping[str, str] = field(default_factory=dict)
    assumed_unit: str = ""
    is_gpu_log: bool = False
    notes: tuple[str, ...] = ()
    in_si: bool = False

    @property
    def name(self) -> str:
        """The file's name without its folders, for notes."""
        return self.source.replace("\\", "/").rpartition("/")[2]


def column_of(frame: pd.DataFrame, name: str) -> pd.Series:
    """One column; names are unique here, so that it is never a table."""
    return cast(pd.Series, frame[name])


def as_floats(values: pd.Series) -> NDArray[np.float64]:
    """Numbers of any type as float64; missing is NaN."""
    return np.asarray(cast(Any, values).to_numpy(np.float64, na_value=np.nan), np.float64)


def parsed(texts: NDArray[np.object_]) -> NDArray[np.float64]:
    """Texts as numbers; NaN where one is none."""
    return np.asarray(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce"), np.float64)


def hash_rows(frame: pd.DataFrame, names: Iterable[str] | None = None) -> Hashes:
    """Hash of every row: the sum of `hash_column` over its columns, or over those that are named."""
    total = np.zeros(len(frame), np.uint64)
    for name in frame.columns if names is None else names:
        total += hash_column(column_of(frame, name))
    return total


def hash_column(values: pd.Series) -> Hashes:
    """Hash of every value, which depends on the column's name and not on how values are stored: 1, 1.0 and "1" are the same."""
    salt = np.uint64(2 * zlib.crc32(str(values.name).encode()) + 1)
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
        return _hash_numbers(as_floats(values)) * salt
    codes, uniques = pd.factorize(values.astype(object).map(str).where(values.notna(), None))
    texts = np.asarray(uniques, object)
    number = parsed(texts)
    hashes = np.where(np.isnan(number), _hash_array(texts), _hash_numbers(number))
    return np.append(hashes, np.uint64(0))[codes] * salt  # code -1 is blank


def _hash_numbers(values: NDArray[np.float64]) -> Hashes:
    return np.where(np.isnan(values), np.uint64(0), _hash_array(values + 0.0))  # -0.0 + 0.0 is 0.0


def _hash_array(values: np.ndarray) -> Hashes:
    return cast(Any, pd).util.hash_array(values, categorize=False)


def hash_as_one(frame: pd.DataFrame) -> Hashes:
    """Hash of every row that agrees with another only where the whole table does; for logs, whose rows may agree by chance."""
    row_hash = hash_rows(frame)
    place = np.arange(len(frame), dtype=np.uint64)
    whole = (row_hash * (2 * place + 1)).sum(dtype=np.uint64)
    return row_hash + whole + place


def raw_table(source: str, frame: pd.DataFrame, **properties: object) -> RawTable:
    """A table that is in memory as a whole."""
    return RawTable(
        source,
        frame,
        tuple(map(str, frame.columns)),
        hash_rows(frame),
        **properties,  # pyright: ignore[reportArgumentType]
    )


MAX_BYTES = 8 * 2**30  # unpacked


class Unpacked(io.RawIOBase):
    """A stream of a file's content, read-only.

    `failure` is the error that ended it, for callers whose parser hides it.
    """

    def __init__(self, path: Path) -> None:
        self.failure: DataError | None = None
        self._chunks = _limited(path)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """True: the stream is for reading only."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fills `buffer` with unpacked bytes and returns how many; 0 at the end.

        Raises:
            DataError: the file is damaged or unpacks to too much.
        """
        target = memoryview(buffer).cast("B")  # pyright: ignore[reportArgumentType]
        while not self._rest:
            try:
                piece = next(self._chunks, None)
            except DataError as error:
                self.failure = error
                raise
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        n = min(len(target), len(self._rest))
        target[:n] = self._rest[:n]
        self._rest = self._rest[n:]
        return n


def first_bytes(path: Path, size: int = 2**16) -> bytes:
    """The beginning of the content.

    Raises:
        DataError: cannot be read, or packed and damaged.
    """
    with io.BufferedReader(Unpacked(path), CHUNK_BYTES) as stream:
        return stream.read(size)


def is_zstd(path: Path) -> bool:
    """Whether the file is packed with zstd."""
    with open_input(path) as file:
        return file.read(len(ZSTD)) == ZSTD


def _limited(path: Path) -> Iterator[bytes]:
    n_bytes = 0
    for piece in _zstd_chunks(path) if is_zstd(path) else chunks(path):
        n_bytes += len(piece)
        if n_bytes > MAX_BYTES:
            raise DataError(f"{path}: more than {MAX_BYTES / 2**30:g} GiB, unpacked. Split it, or leave columns out.")
        yield piece


def _zstd_chunks(path: Path) -> Iterator[bytes]:
    import pyarrow as pa

    most, n_bytes = max(SPARE_BYTES, MAX_RATIO * path.stat().st_size), 0
    try:
        with pa.input_stream(str(path), compression="zstd") as stream:
            while piece := stream.read(CHUNK_BYTES):
                n_bytes += len(piece)
                if n_bytes > most:
                    raise DataError(
                        f"{path}: unpacks to more than {MAX_RATIO} times its size, as no text does. Unpack it."
                    )
                yield piece
    except (OSError, pa.ArrowException):
        raise DataError(f"{path}: a damaged zstd file. Copy it again.") from None


ROWS_AT_ONCE = 500_000
HEAD_BYTES = 2**20
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
    return _joined(source, names, pieces, hashes)


def header_of(path: Path) -> list[str]:
    """The names in a table's first line.

    Raises:
        DataError: as `read_delimited`.
    """
    return _header(path)[1]


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


def read_parquet(path: Path, choose: Choose) -> RawTable:
    """The table in a parquet file.

    Args:
        choose: of the names of flat columns, those to keep.

    Raises:
        DataError: cannot be read, damaged, too large, no rows, or no flat column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _check_size(path, file.metadata)
            schema = file.schema_arrow
            flat = [field.name for field in schema if not _is_nested(field.type)]
            if not flat:
                raise DataError(f"{path}: no column of numbers or texts. Flatten the table.")
            names = [
                name for name in dict.fromkeys(flat) if flat.count(name) == 1 and not name.startswith("__index_level_")
            ]
            keep = choose(names)
            pieces, hashes = [], []
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=names):
                piece = batch.to_pandas(ignore_metadata=True)
                hashes.append(hash_rows(piece))
                pieces.append(_plain(piece[keep]))
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError, TypeError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{path}: a damaged parquet file, or one that is not read: {reason}. Export it again."
        ) from None
    if not pieces:
        raise DataError(f"{path}: no rows. Export the measurements again.")
    return _joined(str(path), flat, pieces, hashes)


def _joined(source: str, header: Sequence[str], pieces: Sequence[pd.DataFrame], hashes: Sequence[Hashes]) -> RawTable:
    """The table of all pieces; times of profilers are in ns."""
    frame = pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
    assumed = "ns" if PROFILER_NAMES & set(header) else ""
    return RawTable(source, frame, tuple(header), np.concatenate(hashes), assumed_unit=assumed)


def _check_size(path: Path, metadata) -> None:
    if metadata.num_columns > MAX_COLUMNS:
        raise DataError(f"{path}: {metadata.num_columns:,} columns, more than {MAX_COLUMNS:,}. Keep those that matter.")
    if metadata.num_rows == 0:
        raise DataError(f"{path}: no rows. Export the measurements again.")
    if metadata.num_rows > MAX_ROWS:
        raise DataError(f"{path}: {metadata.num_rows:,} rows, more than {MAX_ROWS:,}. Split it.")
    n_bytes = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if n_bytes > MAX_BYTES:
        raise DataError(f"{path}: more than {MAX_BYTES / 2**30:g} GiB, unpacked. Split it, or leave columns out.")


def _is_nested(kind) -> bool:
    import pyarrow.types as types

    binary = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return types.is_nested(kind) or any(each(kind) for each in binary)


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Converts categories, which differ from piece to piece, to plain values."""
    categories = [name for name in frame.columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
    return frame.astype({name: frame[name].cat.categories.dtype for name in categories}) if categories else frame
