"""One file's table under the model's names, in SI units: valid rows, and an account of every row that was read.

Tables of GPUs may hold no times but speeds (TFLOP/s, scores) or clocks: what was measured is then seconds of a unit of work. How
GPUs differ is a ratio, so that one over the speed does. A log of clocks counts where the GPU works: at half of the largest
power that was logged, or more. Kernels that compute follow the clock, copies do not; a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.errors import DataError, UnitError
from prism_jax.core.registry import did_you_mean
from prism_jax.fits.report import CleaningReport
from prism_jax.slowdowns.measured_speeds import HALF_POWER, SpeedColumn, kind_of, quantities

from .checks import ROW, refuse_no_zone, refuse_numbers, refuse_order, refuse_text, resubmitted, suspicions
from .columns import DataOptions, ModelColumn, plain, resolve, shown
from .raw_table import RawTable, column_of, hash_column
from .values import chosen, factor, labels, numbers

MOST_NAMED = 3  # files in a message


@dataclass(frozen=True)
class Measurements:
    """Valid measurements.

    Attributes:
        frame: one row per measurement; canonical column names; numbers are float64 in SI units, labels are text; blank is NaN.
            A column that is not required is absent where no file has a value in it.
        hygiene: what was read and what was dropped.
        sources: names of the files.
    """

    frame: pd.DataFrame
    hygiene: CleaningReport
    sources: tuple[str, ...] = ()


@contextmanager
def naming(sources: Sequence[str]) -> Iterator[None]:
    """Errors about measurements raised inside it name the files that they are from.

    Raises:
        DataError, UnitError: as inside, with the names in front unless one of them is in the message.
    """
    try:
        yield
    except (DataError, UnitError) as error:
        if not sources or any(Path(source).name in str(error) for source in sources):
            raise
        more = f" and {len(sources) - MOST_NAMED} more" if len(sources) > MOST_NAMED else ""
        raise type(error)(f"{', '.join(sources[:MOST_NAMED])}{more}: {error}") from None


@dataclass(frozen=True)
class Clean:
    """Checked rows of one file.

    Attributes:
        frame: canonical names; all rows of the file.
        kept: whether each row is valid.
        dropped: rule in words -> rows.
        measured: the measured column as it stands in the file; None if there is none.
        notes: what was assumed or looks wrong.
    """

    frame: pd.DataFrame
    kept: NDArray[np.bool_]
    dropped: Mapping[str, int]
    measured: pd.Series | None
    notes: tuple[str, ...]


class Rows:
    """Rows of a file that are still there, and how many went by which rule."""

    def __init__(self, n: int) -> None:
        self.kept = np.ones(n, bool)
        self.dropped: dict[str, int] = {}

    def drop(self, which: NDArray[np.bool_], rule: str) -> None:
        """Drops those of `which` that are still there."""
        n = int((self.kept & which).sum())
        if n:
            self.dropped[rule] = self.dropped.get(rule, 0) + n
            self.kept &= ~which


def clean(table: RawTable, columns: Sequence[ModelColumn], found: Mapping[str, str], options: DataOptions) -> Clean:
    """The valid rows of a file.

    Args:
        found: canonical name -> name in the file.

    Raises:
        DataError: a required column is missing.
        UnitError: a duration of unknown unit.
    """
    _require(table, columns, found)
    rows = Rows(len(table.frame))
    for name, text in options.where.items():
        hits = chosen(table, columns, found, name, text)
        rows.drop(np.ones(len(table.frame), bool) if hits is None else ~hits, f"not chosen by {name}={text}")
    notes: list[str] = []
    values = {
        column.name: _column(table, column, found[column.name], options, rows, notes)
        for column in columns
        if column.name in found
    }
    _drop_resubmitted(table, rows)
    frame = pd.DataFrame(values, index=pd.RangeIndex(len(table.frame)))
    refuse_order(table.source, columns, frame, rows.kept)
    if any(column.strict for column in columns):
        frame[ROW] = np.arange(1.0, len(frame) + 1.0)
    notes += suspicions(table.name, cast(pd.DataFrame, frame[rows.kept]), columns)
    measured = _measured(columns, found)
    return Clean(
        frame, rows.kept, rows.dropped, None if measured is None else column_of(table.frame, measured), tuple(notes)
    )


def _column(
    table: RawTable, column: ModelColumn, name: str, options: DataOptions, rows: Rows, notes: list[str]
) -> pd.Series:
    """The column in SI units; drops rows that are invalid in it."""
    raw = column_of(table.frame, name).reset_index(drop=True)
    if column.text:
        text = labels(raw)
        if column.strict:
            refuse_text(table.source, column, raw, text, rows.kept)
        if column.required:
            rows.drop(text.isna().to_numpy(bool), f"{column.name} is missing")
        return text
    if column.instant:
        note = refuse_no_zone(table.source, column, raw, rows.kept)
        notes += [f"{table.name}: {note}"] if note else []
    value, beside, is_text = numbers(raw, column)
    if beside is not None and column.is_duration and not np.isnan(beside[~np.isnan(value)]).any():
        with np.errstate(over="ignore"):
            value = value * beside  # every value has its unit beside it
    else:
        by_column = factor(table, column, name, options)
        if by_column.note:
            notes.append(by_column.note)
        per_row = np.broadcast_to(by_column.value, value.shape)
        if column.required:
            rows.drop(np.isnan(per_row), f"{column.name} has no unit of time in {by_column.said_by}")
        with np.errstate(over="ignore"):  # what is infinite in the unit of the column is refused as such
            value = value * (per_row if beside is None else np.where(np.isnan(beside), per_row, beside))
    if column.strict:
        refuse_numbers(table.source, column, raw, value, is_text, rows.kept)
    return pd.Series(_valid(column, value, is_text, rows, notes, table.name))


def _valid(
    column: ModelColumn,
    value: NDArray[np.float64],
    is_text: NDArray[np.bool_],
    rows: Rows,
    notes: list[str],
    source: str,
) -> NDArray[np.float64]:
    infinite = np.isinf(value)
    if not column.required:
        odd = int((rows.kept & (is_text | infinite)).sum())
        if odd:
            notes.append(f"{source}: {odd:,} values of {column.name} are infinite or no numbers and count as blank")
        value = np.where(infinite, np.nan, value)
    else:
        rows.drop(is_text, f"{column.name} is not a number")
        rows.drop(np.isnan(value), f"{column.name} is missing")
        rows.drop(infinite, f"{column.name} is infinite")
    if column.positive:
        with np.errstate(invalid="ignore"):
            rows.drop(value < 0, f"{column.name} is negative")
            rows.drop(value == 0, f"{column.name} is zero")
    if column.is_duration:
        with np.errstate(invalid="ignore"):
            days = column.longest_s / 86_400.0  # 1e12 us and 1e9 ms stand for "did not finish" in some tables
            rows.drop(value > column.longest_s, f"{column.name} is longer than {days:g} days, a placeholder")
    return value


def _drop_resubmitted(table: RawTable, rows: Rows) -> None:
    by_name = {plain(name): name for name in table.frame.columns}
    if "dup_of" in by_name:
        run_id = column_of(table.frame, by_name["run_id"]).reset_index(drop=True) if "run_id" in by_name else None
        dup_of = column_of(table.frame, by_name["dup_of"]).reset_index(drop=True)
        rows.drop(resubmitted(dup_of, run_id, rows.kept), "a run that was submitted before (dup_of)")


def _measured(columns: Sequence[ModelColumn], found: Mapping[str, str]) -> str | None:
    """The column of the file that holds what was measured: the duration, else the first required number."""
    there = [column for column in columns if column.name in found and not column.text]
    best = [column for column in there if column.is_duration] or [column for column in there if column.required]
    return found[best[0].name] if best else None


def _require(table: RawTable, columns: Sequence[ModelColumn], found: Mapping[str, str]) -> None:
    missing = [column for column in columns if column.required and column.name not in found]
    if not missing:
        return
    column = missing[0]
    if table.is_gpu_log:
        raise DataError(
            f"{table.source}: a log of GPU clocks, temperatures and powers, without {column.name}. Give the measurements with it."
        )
    near = did_you_mean(column.name, table.header, "")
    known = ", ".join(dict.fromkeys((column.name, *column.aliases[:6])))
    hint = near.rstrip("?") + "?" if near else "."
    raise DataError(
        f"{table.source}: no column {column.name} (looked for {known}){hint} The file has {', '.join(shown(table.header, 12))}. "
        f"Say which it is with --map {column.name}=NAME."
    )


SECONDS = "duration_s"


def speeds_of(
    source: str, header: Sequence[str], columns: Sequence[ModelColumn], options: DataOptions
) -> tuple[SpeedColumn, ...]:
    """The column of speeds that stands for the seconds that a model of GPUs asks for; none where there are seconds.

    Raises:
        DataError: several columns could be it.
    """
    required = {column.name for column in columns if column.required}
    if not {"gpu", SECONDS} <= required or SECONDS in options.mapping:
        return ()
    if SECONDS in resolve(source, header, columns, {})[0]:
        return ()
    speeds = [name for name in header if kind_of(name) in ("rate", "clock")]
    found = quantities(speeds, source)
    if len(found) > 1:
        names = ", ".join(one.column for one in found)
        raise DataError(f"{source}: speeds of several kernels ({names}). Keep one, or write rows with a column kernel.")
    return found


def with_seconds(table: RawTable, columns: Sequence[ModelColumn], options: DataOptions) -> RawTable:
    """The table with seconds from its speeds, where it holds those alone."""
    found = speeds_of(table.source, table.header, columns, options)
    if not found or found[0].column not in table.frame:
        return table
    (speed,) = found
    what = ModelColumn("clock_mhz" if speed.kind == "clock" else "speed")
    value = numbers(column_of(table.frame, speed.column), what).value
    counts = _working(table) if speed.kind == "clock" else np.ones(len(value), bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        seconds = np.where(counts & (value > 0.0), 1.0 / value, np.nan)
    frame = table.frame.assign(**{SECONDS: seconds})
    header = (*table.header, SECONDS)
    if speed.kind == "clock":  # as a covariate it would explain itself
        frame, header = frame.drop(columns=speed.column), tuple(name for name in header if name != speed.column)
    row_hash = (
        table.row_hash - hash_column(column_of(table.frame, speed.column)) + hash_column(column_of(frame, SECONDS))
    )
    if table.is_gpu_log:
        row_hash = row_hash + np.arange(len(value), dtype=np.uint64)  # samples may well be equal
    follows = (
        "kernels that compute follow the clock, copies do not"
        if speed.kind == "clock"
        else "so ratios are known, seconds are not"
    )
    note = f"{table.name}: {SECONDS} is one over {speed.column}: {follows}"
    return replace(
        table,
        frame=frame,
        header=header,
        row_hash=row_hash,
        is_gpu_log=False,
        notes=(*table.notes, note),
    )


def _working(table: RawTable) -> np.ndarray:
    """Whether the GPU worked in a row, by its power; everywhere where none was logged."""
    if "power_w" not in table.frame:
        return np.ones(len(table.frame), bool)
    power = numbers(column_of(table.frame, "power_w"), ModelColumn("power_w")).value
    most = float(np.nanmax(power, initial=0.0))
    return power >= HALF_POWER * most if most > 0.0 else np.ones(len(power), bool)
