"""Values of one column: numbers with or without a unit after them, dates, labels; which rows hold none, and which are asked for.

Units are from the column's name, from a column of units, declared, or from the kind of file; otherwise refused. `where` keeps the
rows whose column equals a text; numbers are compared as numbers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.errors import DataError, UnitError
from prism_jax.core.registry import did_you_mean

from .columns import (
    FACTORS,
    SPELLINGS,
    TO_SECONDS,
    DataOptions,
    ModelColumn,
    family,
    plain,
    shown,
    understand,
    unit_column,
    where_column,
)
from .raw_table import RawTable, as_floats, column_of, parsed

BLANKS = frozenset(
    ("", "-", "--", "n/a", "na", "nan", "none", "null", "not supported", "unknown error", "not available")
)
"""What stands for no value, in lower case and without brackets."""

TEXT = "str" if int(pd.__version__.partition(".")[0]) >= 3 else object
"""Type of labels, in which blank is NaN."""

_DATES = ("time", "timestamp", "date", "start")  # words in the names of columns that may hold dates
_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_WITH_UNIT = re.compile(r"^([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-zµμ°%]{0,8})$")


class Numbers(NamedTuple):
    """Numbers of a column.

    Attributes:
        value: NaN where there is none.
        unit_factor: of the unit that is written after a value; NaN where none does; None if that is so everywhere.
        is_text: where something stands that is no number.
    """

    value: NDArray[np.float64]
    unit_factor: NDArray[np.float64] | None
    is_text: NDArray[np.bool_]


def numbers(values: pd.Series, column: ModelColumn) -> Numbers:
    """The values as numbers. Dates become seconds since 1970, those without a time zone as if of UTC."""
    nowhere = np.zeros(len(values), bool)
    if pd.api.types.is_timedelta64_dtype(values):
        return Numbers(values.dt.total_seconds().to_numpy(np.float64), np.ones(len(values)), nowhere)
    if pd.api.types.is_datetime64_any_dtype(values):
        return Numbers(_since_1970(values), None, nowhere)
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
        return Numbers(as_floats(values), None, nowhere)
    codes, uniques = pd.factorize(values.astype(object).where(values.notna(), None))
    value, beside, is_text = _text_numbers(np.array([str(text).strip() for text in uniques], object), column)
    value, is_text = np.append(value, np.nan), np.append(is_text, False)  # code -1 is blank
    return Numbers(value[codes], None if beside is None else np.append(beside, np.nan)[codes], is_text[codes])


def labels(values: pd.Series) -> pd.Series:
    """The values as text; NaN where there is none. Whole numbers have no decimal point."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        codes, uniques = values.cat.codes.to_numpy(), values.cat.categories
    else:
        codes, uniques = pd.factorize(values)
    texts = pd.Series([_label(value) for value in uniques], dtype=TEXT)
    return pd.Series(texts.array.take(codes, allow_fill=True), index=values.index)


def _label(value: object) -> str | float:
    if isinstance(value, (float, np.floating)) and np.isfinite(value) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    return np.nan if text.strip("[]").lower() in BLANKS else text


def _text_numbers(texts: NDArray[np.object_], column: ModelColumn) -> Numbers:
    blank = np.array([text.strip("[]").lower() in BLANKS for text in texts], bool)
    value = np.where(blank, np.nan, parsed(texts))
    rest = np.isnan(value) & ~blank
    beside = None
    if rest.any() and family(column):
        number, factor = _with_units(texts[rest], family(column))
        value[rest] = number
        beside = np.full(len(texts), np.nan)
        beside[rest] = factor
    elif rest.any() and any(word in column.name.split("_") for word in _DATES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas tells which of several date formats it takes
            dates = pd.to_datetime(pd.Series(texts[rest], dtype=object), errors="coerce", utc=True, format="mixed")
        value[rest] = _since_1970(dates)
    return Numbers(value, beside, np.isnan(value) & ~blank)


def _with_units(texts: NDArray[np.object_], suffix: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers, and factors of the units after them, of texts such as "1410 MHz"; NaN where a text is not of that kind."""
    factors = {spelling: FACTORS[suffix][unit] for spelling, unit in SPELLINGS[suffix].items()}
    parts = [_WITH_UNIT.match(text) for text in texts]
    factor = np.array([factors.get(part[2].lower(), np.nan) if part else np.nan for part in parts], np.float64)
    number = parsed(np.array([part[1] if part else "" for part in parts], object))
    return np.where(np.isnan(factor), np.nan, number), factor


def _since_1970(dates: pd.Series) -> NDArray[np.float64]:
    """Seconds since 1970 of dates in whatever unit pandas keeps them: in nanoseconds alone they end in 2262."""
    utc = dates.dt.tz_convert(None) if dates.dt.tz is not None else dates
    counts = utc.to_numpy()
    unit, _ = np.datetime_data(counts.dtype)
    return np.where(np.isnat(counts), np.nan, counts.astype(np.int64) / _PER_S[unit])


class Factor(NamedTuple):
    """Factor by which values are multiplied.

    Attributes:
        value: one factor, or one per row; NaN for a row whose unit is not known.
        said_by: where the unit is from.
        note: what was assumed; "" if nothing.
    """

    value: float | NDArray[np.float64]
    said_by: str
    note: str = ""


def factor(table: RawTable, column: ModelColumn, name: str, options: DataOptions) -> Factor:
    """Returns the factor that converts values of column `name` of a file to the unit of the model's column.

    Raises:
        UnitError: a duration of unknown unit, or a declared unit that the file contradicts.
    """
    suffix = family(column)
    if not suffix or table.in_si:
        return Factor(1.0, "")
    in_name = understand(name, suffix).unit or table.units.get(name, "")
    declared = options.units.get(column.name, "")
    if in_name:
        if declared and declared != in_name:
            raise UnitError(
                f"{table.source}: {name} is in {in_name}, but --unit says {declared} for {column.name}. Leave --unit out, "
                "or rename the column."
            )
        return Factor(FACTORS[suffix][in_name], name)
    rows = _per_row(table, column, name, declared)
    if rows is not None:
        return rows
    if declared:
        return Factor(FACTORS[suffix][declared], "--unit")
    if not column.is_duration:
        return Factor(1.0, "")
    if table.assumed_unit:
        note = f"{table.name}: {name} carries no unit; {table.assumed_unit} is assumed, as in exports of profilers"
        return Factor(TO_SECONDS[table.assumed_unit], "kind of file", note)
    raise UnitError(
        f"{table.source}: the unit of {name} is not known. Say it with --unit {understand(column.name, 's').base}=ms (or s, us, "
        f"ns), in the column's name ({name}_ms), or in a column {name}_unit."
    )


def _per_row(table: RawTable, column: ModelColumn, name: str, declared: str) -> Factor | None:
    """Factors from a column of units, or from the name of the metric that a row holds."""
    suffix = family(column)
    of_column = unit_column(name, column, table.frame.columns)
    if of_column is not None:
        units = column_of(table.frame, of_column)
        texts = {text: SPELLINGS[suffix].get(str(text).strip().lower()) for text in units.dropna().unique()}
        if plain(of_column) in ("unit", "units") and not any(texts.values()):
            return None  # of something else
        if declared and any(unit not in (None, declared) for unit in texts.values()):
            raise UnitError(
                f"{table.source}: {of_column} says other units than --unit {column.name}={declared}. Leave one out."
            )
        return Factor(_look_up(units, texts, FACTORS[suffix], declared), of_column)
    metric = next((other for other in table.frame.columns if plain(other) == "metric" and other != name), None)
    if metric is None or suffix != "s" or declared:
        return None
    names = column_of(table.frame, metric)
    texts = {text: understand(str(text), "s").unit for text in names.dropna().unique()}
    texts = {text: unit if unit in TO_SECONDS else None for text, unit in texts.items()}
    return Factor(_look_up(names, texts, TO_SECONDS, ""), metric) if any(texts.values()) else None


def _look_up(
    texts: pd.Series, units: dict[object, str | None], factors: dict[str, float], blank: str
) -> NDArray[np.float64]:
    known = {text: factors[unit] if unit else np.nan for text, unit in units.items()}
    codes, uniques = pd.factorize(texts)
    per_code = np.array([known[text] for text in uniques] + [factors[blank] if blank else np.nan], np.float64)
    return per_code[codes]  # -1, the last, is blank


MAX_SHOWN = 200  # values of a column among which a misspelt one is looked for


def chosen(
    table: RawTable, columns: Sequence[ModelColumn], found: Mapping[str, str], name: str, text: str
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
    return same | (parsed(labels(values).to_numpy(object)) == number)


def refuse_unknown(
    tables: Sequence[RawTable],
    columns: Sequence[ModelColumn],
    found: Sequence[Mapping[str, str]],
    where: Mapping[str, str],
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
