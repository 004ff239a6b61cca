"""RawTable: what every reader returns, before names, units and values are checked."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

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
    number = np.asarray(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce"), np.float64)
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
