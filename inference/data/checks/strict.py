# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Rows that are refused by their number: where every row is an event, to leave one out would make a rate wrong in silence."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.errors import DataError
from prism_jax.hints import did_you_mean

from ..columns import Column

ROW = "source_row"
"""Column of checked tables that says which row of its file a row was, the first being 1; there where a column is strict."""

_ZONE = re.compile(r"(Z|[+-]\d{2}:?\d{2}|\b(UTC|GMT))$", re.IGNORECASE)
_NUMBER = re.compile(r"^[-+]?[0-9.]+(e[-+]?[0-9]+)?$", re.IGNORECASE)
LONGEST_SHOWN = 40
YEAR_2200_S = 7_258_118_400.0  # beyond it stand milliseconds


def refuse_text(source: str, column: Column, raw: pd.Series, text: pd.Series, alive: NDArray[np.bool_]) -> None:
    """Refuses blank labels of a column that needs them, and labels that it does not know.

    Raises:
        DataError: the first of them, by its row.
    """
    blank = text.isna().to_numpy(bool)
    if not column.keeps_blank:
        _refuse(source, column, raw, alive & blank, "is missing. Fill it in, or leave the row out.")
    if column.choices:
        known = text.str.lower().isin(column.choices).to_numpy(bool)
        wrong = alive & ~blank & ~known
        if wrong.any():
            near = did_you_mean(str(text[wrong].iloc[0]).lower(), column.choices)
            _refuse(source, column, raw, wrong, f"is not known{near}")


def refuse_numbers(
    source: str,
    column: Column,
    raw: pd.Series,
    value: NDArray[np.float64],
    is_text: NDArray[np.bool_],
    alive: NDArray[np.bool_],
) -> None:
    """Refuses what is no finite number, and numbers that are too small.

    Raises:
        DataError: the first of them, by its row.
    """
    what = "a date with its zone, or seconds since 1970" if column.instant else "a number"
    _refuse(source, column, raw, alive & is_text, f"is not {what}. Correct the row.")
    _refuse(source, column, raw, alive & np.isinf(value), "is infinite. Correct the row.")
    if not column.keeps_blank:
        _refuse(source, column, raw, alive & np.isnan(value), "is missing. Fill it in, or leave the row out.")
    with np.errstate(invalid="ignore"):
        late = column.instant & (value > YEAR_2200_S)
        _refuse(
            source,
            column,
            raw,
            alive & late,
            "is after the year 2200. Write seconds since 1970, not milliseconds.",
        )
        low, bound = (
            (value <= 0.0, "above 0") if column.positive else (value < column.least, f"at least {column.least:g}")
        )
    _refuse(source, column, raw, alive & low, f"must be {bound}. Correct the row.")


def refuse_no_zone(source: str, column: Column, raw: pd.Series, alive: NDArray[np.bool_]) -> str:
    """Refuses dates in text that name no zone, as rows of one file may come from clocks of several zones.

    Returns:
        A note where a file types its dates, which is one clock for the whole file, and that clock names no zone.

    Raises:
        DataError: the first date without a zone, by its row.
    """
    if pd.api.types.is_datetime64_any_dtype(raw):
        if getattr(raw.dt, "tz", None) is not None:
            return ""
        return f"{column.name} names no zone: one clock is assumed for the whole file, off by an hour over summer time"
    if pd.api.types.is_numeric_dtype(raw):
        return ""
    texts = raw.astype(object).where(raw.notna(), "").map(lambda value: str(value).strip())
    without = [bool(text) and not _NUMBER.match(text) and not _ZONE.search(text) for text in texts]
    remedy = "has no time zone. Write 2026-03-01T14:00:00Z, an offset such as +01:00, or seconds since 1970."
    _refuse(source, column, raw, alive & np.array(without, bool), remedy)
    return ""


def refuse_order(source: str, columns: Sequence[Column], frame: pd.DataFrame, alive: NDArray[np.bool_]) -> None:
    """Refuses rows in which an instant comes before one that it cannot come before.

    Raises:
        DataError: the first of them, by its row.
    """
    for column in columns:
        if not column.not_before or column.name not in frame or column.not_before not in frame:
            continue
        wrong = alive & (frame[column.name] < frame[column.not_before]).to_numpy(bool)
        if wrong.any():
            row = int(np.argmax(wrong))
            early = float(frame[column.not_before].iloc[row] - frame[column.name].iloc[row])
            raise DataError(
                f"{source}: row {row + 1}: {column.name} is {early:,.0f} s before {column.not_before}. Correct the row; where "
                "the clocks changed to summer time, write both with their zone."
            )


def _refuse(source: str, column: Column, raw: pd.Series, wrong: NDArray[np.bool_], why: str) -> None:
    """Names the column as the file does: its values are those of the file, too, in the unit that they have there."""
    if wrong.any():
        name = raw.name if isinstance(raw.name, str) else column.name
        row = int(np.argmax(wrong))
        value = raw.iloc[row]
        text = repr(value[:LONGEST_SHOWN]) if isinstance(value, str) else str(value)[:LONGEST_SHOWN]
        shown = "" if pd.isna(value) or not str(value).strip() else f" {text}"
        raise DataError(f"{source}: row {row + 1}: {name}{shown} {why}")


def refuse_row(frame: pd.DataFrame, wrong: NDArray[np.bool_], why: str) -> None:
    """Refuses a checked table for the first row that is wrong, by its number in its file.

    Raises:
        DataError: there is one.
    """
    if wrong.any():
        row = int(np.argmax(wrong))
        number = int(frame[ROW].iloc[row]) if ROW in frame else row + 1
        raise DataError(f"row {number}: {why}")


def numbers_of(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """A column of numbers, NaN where the table has none."""
    return frame[name].to_numpy(dtype=np.float64) if name in frame else np.full(len(frame), np.nan)
