"""Values of one column: numbers with or without a unit beside them, dates, labels; and which rows hold none."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .columns import Column
from .names import FACTORS, SPELLINGS, family

BLANKS = frozenset(
    ("", "-", "--", "n/a", "na", "nan", "none", "null", "not supported", "unknown error", "not available")
)
"""What stands for no value, in lower case and without brackets."""

TEXT = "str" if int(pd.__version__.partition(".")[0]) >= 3 else object
"""Type of labels, in which blank is NaN."""

_DATES = ("time", "timestamp", "date", "start")  # words in the names of columns that may hold dates
_WITH_UNIT = r"^([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-zµμ°%]{0,8})$"


class Numbers(NamedTuple):
    """Numbers of a column.

    Attributes:
        value: NaN where there is none.
        unit_factor: of the unit that stands beside a value; NaN where none does; None if that is so everywhere.
        is_text: where something stands that is no number.
    """

    value: NDArray[np.float64]
    unit_factor: NDArray[np.float64] | None
    is_text: NDArray[np.bool_]


def numbers(values: pd.Series, column: Column) -> Numbers:
    """The values as numbers. Dates become seconds since 1970, those without a time zone as if of UTC."""
    nowhere = np.zeros(len(values), bool)
    if pd.api.types.is_timedelta64_dtype(values):
        return Numbers(values.dt.total_seconds().to_numpy(np.float64), np.ones(len(values)), nowhere)
    if pd.api.types.is_datetime64_any_dtype(values):
        return Numbers(_since_1970(values), None, nowhere)
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_complex_dtype(values):
        return Numbers(values.to_numpy(np.float64, na_value=np.nan), None, nowhere)
    codes, uniques = pd.factorize(values.astype(object).where(values.notna(), None))
    texts = pd.Series([str(text).strip() for text in uniques], dtype=object)
    found = _text_numbers(texts, column)
    last = Numbers(
        *(
            None if part is None else np.append(part, fill)
            for part, fill in zip(found, (np.nan, np.nan, False), strict=True)
        )
    )  # pyright: ignore
    return Numbers(*(None if part is None else part[codes] for part in last))  # pyright: ignore[reportArgumentType]


def labels(values: pd.Series) -> pd.Series:
    """The values as text; NaN where there is none. Whole numbers have no decimal point."""
    codes, uniques = pd.factorize(values.astype(object) if values.dtype == object else values)
    texts = [_label(value) for value in uniques]
    return pd.Series(np.array([*texts, np.nan], object)[codes], index=values.index, dtype=TEXT)


def _label(value: object) -> str | float:
    if isinstance(value, (float, np.floating)) and np.isfinite(value) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    return np.nan if text.strip("[]").lower() in BLANKS else text


def _text_numbers(texts: pd.Series, column: Column) -> Numbers:
    blank = texts.str.strip("[]").str.lower().isin(BLANKS).to_numpy(bool)
    value = pd.to_numeric(texts.where(~blank), errors="coerce").to_numpy(np.float64)
    unit_factor = None
    rest = np.isnan(value) & ~blank
    if rest.any() and family(column):
        suffix = family(column)
        parts = texts[rest].str.extract(_WITH_UNIT)
        factors = {spelling: FACTORS[suffix][unit] for spelling, unit in SPELLINGS[suffix].items()}
        factor = parts[1].str.lower().map(factors).to_numpy(np.float64)
        number = pd.to_numeric(parts[0], errors="coerce").to_numpy(np.float64)
        unit_factor = np.full(len(texts), np.nan)
        unit_factor[rest] = factor
        value[rest] = np.where(np.isnan(factor), np.nan, number)
    elif rest.any() and any(word in column.name.split("_") for word in _DATES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas tells which of several date formats it takes
            value[rest] = _since_1970(pd.to_datetime(texts[rest], errors="coerce", utc=True, format="mixed"))
    return Numbers(value, unit_factor, np.isnan(value) & ~blank)


def _since_1970(dates: pd.Series) -> NDArray[np.float64]:
    utc = dates.dt.tz_convert(None) if dates.dt.tz is not None else dates
    return ((utc - pd.Timestamp(0)) / pd.Timedelta(seconds=1)).to_numpy(np.float64)
