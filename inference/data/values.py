"""Values of one column: numbers with or without a unit beside them, dates, labels; and which rows hold none."""

from __future__ import annotations

import re
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .columns import Column
from .formats.raw_table import as_floats
from .names import FACTORS, SPELLINGS, family

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


def as_numbers(texts: pd.Series) -> NDArray[np.float64]:
    """Texts as numbers; NaN where one is none."""
    return _parsed(texts.to_numpy(object))


def _parsed(texts: NDArray[np.object_]) -> NDArray[np.float64]:
    return np.asarray(pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce"), np.float64)


def _label(value: object) -> str | float:
    if isinstance(value, (float, np.floating)) and np.isfinite(value) and float(value).is_integer():
        return str(int(value))
    text = str(value).strip()
    return np.nan if text.strip("[]").lower() in BLANKS else text


def _text_numbers(texts: NDArray[np.object_], column: Column) -> Numbers:
    blank = np.array([text.strip("[]").lower() in BLANKS for text in texts], bool)
    value = np.where(blank, np.nan, _parsed(texts))
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
    """Numbers, and factors of the units beside them, of texts such as "1410 MHz"; NaN where a text is not of that kind."""
    factors = {spelling: FACTORS[suffix][unit] for spelling, unit in SPELLINGS[suffix].items()}
    parts = [_WITH_UNIT.match(text) for text in texts]
    factor = np.array([factors.get(part[2].lower(), np.nan) if part else np.nan for part in parts], np.float64)
    number = _parsed(np.array([part[1] if part else "" for part in parts], object))
    return np.where(np.isnan(factor), np.nan, number), factor


def _since_1970(dates: pd.Series) -> NDArray[np.float64]:
    """Seconds since 1970 of dates in whatever unit pandas keeps them: in nanoseconds alone they end in 2262."""
    utc = dates.dt.tz_convert(None) if dates.dt.tz is not None else dates
    counts = utc.to_numpy()
    unit, _ = np.datetime_data(counts.dtype)
    return np.where(np.isnat(counts), np.nan, counts.astype(np.int64) / _PER_S[unit])
