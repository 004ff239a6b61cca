"""Tables in parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from prism_jax.errors import DataError

from .delimited import PROFILER_NAMES, ROWS_AT_ONCE, Choose
from .packed import MAX_BYTES
from .raw_table import MAX_COLUMNS, MAX_ROWS, RawTable, hash_rows


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
    frame = pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
    assumed = "ns" if PROFILER_NAMES & set(names) else ""
    return RawTable(str(path), frame, tuple(flat), np.concatenate(hashes), assumed_unit=assumed)


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

    return (
        types.is_nested(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Without categories, which differ from piece to piece."""
    categories = [name for name in frame.columns if isinstance(frame[name].dtype, pd.CategoricalDtype)]
    return frame.astype({name: frame[name].cat.categories.dtype for name in categories}) if categories else frame
