"""`where`: only the rows whose column equals a text; numbers are compared as numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.errors import DataError
from prism_jax.hints import did_you_mean

from .columns import Column
from .formats.raw_table import RawTable, as_floats, column_of
from .resolve import shown, where_column
from .values import as_numbers, labels

MAX_SHOWN = 200  # values of a column among which a misspelt one is looked for


def chosen(
    table: RawTable, columns: Sequence[Column], found: Mapping[str, str], name: str, text: str
) -> NDArray[np.bool_] | None:
    """Whether every row of the file holds `text` in column `name`; None if the file has no such column."""
    of_file = where_column(list(table.frame.columns), columns, found, name)
    if of_file is None:
        return None
    return equals(column_of(table.frame, of_file), text)


def equals(values: pd.Series, text: str) -> NDArray[np.bool_]:
    """Whether every value is `text`, or the same number."""
    if len(values) == 0:
        return np.zeros(0, bool)
    same = np.asarray(labels(values) == str(text).strip(), bool)
    try:
        number = float(text)
    except ValueError:
        return same
    if pd.api.types.is_numeric_dtype(values):
        return same | np.isclose(as_floats(values), number, rtol=1e-12, atol=0.0)
    numeric = as_numbers(labels(values))
    return same | (numeric == number)


def refuse_unknown(
    tables: Sequence[RawTable], columns: Sequence[Column], found: Sequence[Mapping[str, str]], where: Mapping[str, str]
) -> None:
    """Checks that every condition is about a column of some file, and holds for some row.

    Raises:
        DataError: it is not; names what is near.
    """
    for name, text in where.items():
        option = f"--where {name}={text}"
        have = [
            (table, of_file)
            for table, names in zip(tables, found, strict=True)
            if (of_file := where_column(list(table.frame.columns), columns, names, name)) is not None
        ]
        if not have:
            header = [column for table in tables for column in shown(table.header)] + [c.name for c in columns]
            raise DataError(
                f"{option}: {_named(tables)} without a column {name}{did_you_mean(name, dict.fromkeys(header))}"
            )
        if not any(equals(column_of(table.frame, of_file), text).any() for table, of_file in have):
            values = pd.concat([labels(column_of(table.frame, of_file).drop_duplicates()) for table, of_file in have])
            values = [str(value)[:60] for value in values.dropna().unique()[:MAX_SHOWN]]
            close = did_you_mean(text, values, None if len(values) <= 12 else "")
            raise DataError(f"{option}: no row of {_named([table for table, _ in have])} has it{close}")


def _named(tables: Sequence[RawTable]) -> str:
    return ", ".join(table.source for table in tables[:3]) + (" and others" if len(tables) > 3 else "")
