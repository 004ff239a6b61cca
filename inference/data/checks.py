"""Checks of measurements: rows refused by their number, values that look wrong, rows that were read before.

Where every row is an event, to leave one out would make a rate wrong in silence: such rows are refused. What looks wrong in
values that are all valid is said, never acted on.

Equal rows are not always one measurement: where repeats carry no number and times are rounded, two measurements may well agree.
Then as many rows of equal labels differ by a single unit of the last digit as agree (twice as many, for a smooth distribution);
where rows were copied, next to none do. That decides. Runs that were submitted again are found by their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError
from prism_jax.core.registry import did_you_mean

from .columns import ModelColumn
from .raw_table import Hashes, as_floats, column_of, hash_column
from .values import labels

# pyright: reportAttributeAccessIssue=false, reportReturnType=false
# (of pandas without stubs, every expression may be of any type)


ROW = "source_row"
"""Column of checked tables that says which row of its file a row was, the first being 1; there where a column is strict."""

_ZONE = re.compile(r"(Z|[+-]\d{2}:?\d{2}|\b(UTC|GMT))$", re.IGNORECASE)
_NUMBER = re.compile(r"^[-+]?[0-9.]+(e[-+]?[0-9]+)?$", re.IGNORECASE)
LONGEST_SHOWN = 40
YEAR_2200_S = 7_258_118_400.0  # beyond it stand milliseconds


def refuse_text(source: str, column: ModelColumn, raw: pd.Series, text: pd.Series, alive: NDArray[np.bool_]) -> None:
    """Refuses blank labels of a column that needs them, and labels that it does not know.

    Raises:
        DataError: the first of them, by its row.
    """
    blank = text.isna().to_numpy(bool)
    if column.required:
        _refuse(source, column, raw, alive & blank, "is missing. Fill it in, or leave the row out.")
    if column.choices:
        known = text.str.lower().isin(column.choices).to_numpy(bool)
        wrong = alive & ~blank & ~known
        if wrong.any():
            near = did_you_mean(str(text[wrong].iloc[0]).lower(), column.choices)
            _refuse(source, column, raw, wrong, f"is not known{near}")


def refuse_numbers(
    source: str,
    column: ModelColumn,
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
    refuse = partial(_refuse, source, column, raw)
    refuse(alive & is_text, f"is not {what}. Correct the row.")
    refuse(alive & np.isinf(value), "is infinite. Correct the row.")
    if column.required:
        refuse(alive & np.isnan(value), "is missing. Fill it in, or leave the row out.")
    with np.errstate(invalid="ignore"):
        late = column.instant & (value > YEAR_2200_S)
        low = value <= 0.0 if column.positive else value < column.least
    refuse(alive & late, "is after the year 2200. Write seconds since 1970, not milliseconds.")
    bound = "above 0" if column.positive else f"at least {column.least:g}"
    refuse(alive & low, f"must be {bound}. Correct the row.")


def refuse_no_zone(source: str, column: ModelColumn, raw: pd.Series, alive: NDArray[np.bool_]) -> str:
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


def refuse_order(source: str, columns: Sequence[ModelColumn], frame: pd.DataFrame, alive: NDArray[np.bool_]) -> None:
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


def _refuse(source: str, column: ModelColumn, raw: pd.Series, wrong: NDArray[np.bool_], why: str) -> None:
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


def texts_of(frame: pd.DataFrame, name: str, blank: str = "") -> list[str]:
    """A column of labels, `blank` where none is given."""
    if name not in frame:
        return [blank] * len(frame)
    return [blank if pd.isna(value) else str(value) for value in frame[name]]


def groups_of(frame: pd.DataFrame, column: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yields names and rows of the groups that a column names, in the order of their names."""
    names = np.array(texts_of(frame, column))
    yield from ((str(name), frame[names == name]) for name in np.unique(names))


GROUPS = (
    "kernel", "op", "metric", "benchmark", "system", "group", "message_bytes", "n_gpus", "n_steps", "input_size", "m", "n", "k",
)  # fmt: skip
MIN_ROWS = 20
MIN_GAP = 100.0  # factor between neighbouring values
UNIT_STEP = (300.0, 3000.0)  # factor between the medians on both sides, about 1,000
MIN_HEAP = 5  # values on either side


def suspicions(source: str, frame: pd.DataFrame, columns: Sequence[ModelColumn]) -> list[str]:
    """Notes on one file's durations: all the same, or two heaps about 1,000 apart."""
    notes: list[str] = []
    for column in columns:
        if not column.is_duration or column.name not in frame:
            continue
        values = as_floats(column_of(frame, column.name))
        good = values > 0
        if len(values) >= MIN_ROWS and good.all() and np.ptp(values) == 0:
            notes.append(
                f"{source}: {column.name} is {values[0]:g} in all {len(values):,} rows. Is it the measured column?"
            )
        keys = [name for name in GROUPS if name in frame and name != column.name]
        groups = _groups(cast(pd.DataFrame, frame[good]), values[good], keys)
        n_mixed = sum(_looks_mixed(group) for group in groups)
        if n_mixed:
            where = f" in {n_mixed:,} of {len(groups):,} groups of equal {', '.join(keys)}" if keys else ""
            notes.append(f"{source}: {column.name} falls into two heaps about 1,000 apart{where}. Are units mixed?")
    return notes


def _groups(frame: pd.DataFrame, values: Floats, keys: Sequence[str]) -> list[Floats]:
    """The values by equal keys; a blank is a key like any other."""
    if not keys or not len(values):
        return [values]
    number = np.zeros(len(values), np.int64)
    for key in keys:
        codes, uniques = pd.factorize(column_of(frame, key), use_na_sentinel=False)
        number, _ = pd.factorize(number * len(uniques) + codes)
    order = np.argsort(number, kind="stable")
    return np.split(values[order], np.flatnonzero(np.diff(number[order])) + 1)


def _looks_mixed(values: Floats) -> bool:
    if len(values) < MIN_ROWS or values.max() < UNIT_STEP[0] * values.min():
        return False
    values = np.sort(values)
    ratio = values[1:] / values[:-1]
    cut = int(np.argmax(ratio)) + 1
    if ratio[cut - 1] < MIN_GAP or min(cut, len(values) - cut) < MIN_HEAP:
        return False
    return bool(UNIT_STEP[0] <= np.median(values[cut:]) / np.median(values[:cut]) <= UNIT_STEP[1])


MAX_DECIMALS = 9
# Pairs one unit apart for every equal pair, from which equality is taken to be chance; chance makes it 2
MIN_NEAR = 0.5


def copied_rows(row_hash: Hashes, value: pd.Series | None) -> tuple[NDArray[np.bool_], int]:
    """Marks rows that are copies of an earlier one, and counts rows equal to one before by chance, which makes none a copy.

    Args:
        row_hash: of whole rows, as `RawTable.row_hash`.
        value: the measured column; None if there is none.
    """
    again = pd.Series(row_hash).duplicated().to_numpy(bool)
    if not again.any() or value is None:
        return again, 0
    label = row_hash - hash_column(value)
    if _is_chance(label, as_floats(value)):
        return np.zeros(len(again), bool), int(again.sum())
    return again, 0


def _is_chance(label: Hashes, value: NDArray[np.float64]) -> bool:
    usable = pd.Series(label).duplicated(keep=False).to_numpy(bool) & ~np.isnan(value)
    groups, _ = pd.factorize(label[usable])
    order = np.lexsort((value[usable], groups))
    group, ordered = groups[order], value[usable][order]
    is_first = np.append(True, (np.diff(group) != 0) | (np.diff(ordered) != 0))[: len(group)]
    n = np.diff(np.append(np.flatnonzero(is_first), len(group))).astype(np.float64)
    group, ordered = group[is_first], ordered[is_first]
    if not len(group):
        return False
    decimals = np.zeros(group.max() + 1)
    np.maximum.at(decimals, group, _decimals(ordered))
    unit = 10.0 ** -decimals[group]
    near = (np.diff(group) == 0) & (np.diff(ordered) < 1.5 * unit[1:])
    return bool((n[1:] * n[:-1])[near].sum() >= MIN_NEAR * (n * (n - 1) / 2).sum())


def _decimals(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Decimal places with which every value is written."""
    places = np.full(len(value), float(MAX_DECIMALS))
    for k in range(MAX_DECIMALS - 1, -1, -1):
        scaled = value * 10.0**k
        places[np.abs(scaled - np.round(scaled)) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)] = k
    return places


def resubmitted(dup_of: pd.Series, run_id: pd.Series | None, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks rows that belong to a run that is there already under another number.

    Args:
        dup_of: number of the run that this one repeats; blank in a run of its own.
        run_id: number of the run; None if the file has none.
        alive: rows that are still there. A copy whose original is not there stands for it.
    """
    copy = labels(dup_of).notna().to_numpy(bool)
    if run_id is None or not copy.any():
        return copy
    numbers, _ = pd.factorize(pd.concat([labels(run_id), labels(dup_of)]))
    run, source = numbers[: len(run_id)], numbers[len(run_id) :]
    original = np.where(copy, source, run)
    stands = np.full(original.max() + 1, -1)  # which run stands for an original
    rows = np.flatnonzero(alive)
    rows = rows[np.argsort(copy[rows], kind="stable")][::-1]
    stands[original[rows]] = run[rows]  # the last assignment wins: the original itself, else its first copy
    return alive & (stands[original] != run)
