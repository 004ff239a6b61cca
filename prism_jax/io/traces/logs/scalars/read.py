"""`read_scalars`: step times from rows of named scalars, whatever file they stand in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from .....errors import DataError
from .....recorded.trace.step_log import StepLog
from ....job.document import short
from ....numbers import is_plain
from ..clock import Clocked, steps_by_clock, timestamp
from ..entries import NAN, Entries, Entry, interval
from .choose import SAY_UNIT, Chosen
from .names import UNITS

Value: TypeAlias = float | int | str | None
BLANKS = frozenset(("", "nan", "null", "none", "n/a", "-"))
TOLERANCE = 3.0  # factor between a step time and the clock, either way, within which a unit is believed
FEWEST_GROWING = 10  # entries of which one tells a clock from step times
UNIT_NAMES = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}


class Row(NamedTuple):
    """Scalars that were logged together, by name, and where they stand."""

    place: str
    values: Mapping[str, Value]


def read_scalars(path: Path, chosen: Chosen, rows: Iterable[Row], what: str, framework: str = "") -> StepLog:
    """The step times in `rows`.

    Args:
        chosen: which names are what.
        what: the kind of file, for the notes.

    Raises:
        DataError: a value is not what its name says, no row holds a step time, or nothing tells the unit.
    """
    entries = Entries(path)
    for row in rows:
        entry = _entry(row, chosen)
        if entry is not None:
            entries.add(entry)
    if len(entries) == 0:
        named = chosen.time or chosen.clock
        raise DataError(f"{path}: no row holds a value of {named!r}. Export the run again.")
    notes = [what]
    if chosen.time is None:
        found = entries.clocked()
        if len(found.step) == 0:
            raise DataError(f"{path}: no two rows between which time passed and steps were made, by {chosen.clock!r}.")
    else:
        found, unit_note = _in_seconds(entries, chosen, path)
        notes += unit_note
        _refuse_clock(path, chosen.time, found)
    return entries.step_log(found, framework=framework, notes=tuple(notes))


def _entry(row: Row, chosen: Chosen) -> Entry | None:
    """None for a row without the value."""
    value = NAN if chosen.time is None else _number(row, chosen.time)
    clock_s = NAN if chosen.clock is None else _clock(row, chosen.clock, chosen.clock_unit_s)
    if math.isnan(clock_s if chosen.time is None else value):
        return None
    step: int | None = None
    if chosen.step is not None:
        number = _number(row, chosen.step)
        if math.isnan(number):
            return None
        if not abs(number) <= 2**53 or number != round(number):
            raise DataError(f"{row.place} {chosen.step}: {number:g} is not the number of a step")
        step = int(number)
    if chosen.time is not None and not 0 < value < math.inf:
        raise DataError(f"{row.place} {chosen.time}: {value:g} is not a step time. Remove the row.")
    return Entry(step, seconds=value, clock_s=clock_s)


def _number(row: Row, name: str) -> float:
    value = row.values.get(name)
    if value is None or isinstance(value, bool):
        return NAN
    if isinstance(value, str):
        if value.strip().lower() in BLANKS:
            return NAN
        try:
            number = float(value) if is_plain(value) else None
        except ValueError:
            number = None
        if number is None:
            raise DataError(f"{row.place} {name}: {short(value)} is not a number")
        return number
    try:
        return float(value)
    except OverflowError:
        raise DataError(f"{row.place} {name}: {short(value)} is too large") from None


def _clock(row: Row, name: str, unit_s: float | None) -> float:
    """Seconds; a number without a unit counts in s, or in ms or us where it is too large for that since 1970."""
    value = row.values.get(name)
    if isinstance(value, str) and (found := timestamp(value)) is not None:
        return found[0]
    number = _number(row, name)
    if unit_s is not None or math.isnan(number):
        return number * (unit_s or 1.0)
    return number * (1.0 if abs(number) < 1e11 else 1e-3 if abs(number) < 1e14 else 1e-6)


def _in_seconds(entries: Entries, chosen: Chosen, path: Path) -> tuple[Clocked, list[str]]:
    found = entries.timed(is_mean=chosen.is_mean)
    gaps = interval(found.step)
    notes = []
    if not chosen.is_mean and len(gaps) > 2 and float(np.median(gaps[1:])) > 1.0:
        notes.append(f"entries are {np.median(gaps[1:]):.0f} steps apart; each counts as the time of a single step")
    if chosen.unit_s is not None:
        return found._replace(step_s=found.step_s * chosen.unit_s), notes
    unit_s = unit_by_clock(found, entries)
    if unit_s is None:
        raise DataError(
            f"{path} {chosen.time!r}: nothing says the unit: its name does not, and no unit fits {chosen.clock!r}. {SAY_UNIT}."
        )
    notes.append(f"{chosen.time} is in {UNIT_NAMES[unit_s]}, by {chosen.clock}")
    return found._replace(step_s=found.step_s * unit_s), notes


def unit_by_clock(found: Clocked, entries: Entries) -> float | None:
    """Seconds of the unit in which step times agree with the clock, at the median over entries; None where none does."""
    clocked = steps_by_clock(found.step, entries.clock_s, np.zeros(len(found.step), np.int64), entries.resolution_s)
    if len(clocked.step) == 0:
        return None
    scale = float(np.median(clocked.step_s)) / float(np.median(found.step_s))
    best = min(set(UNITS.values()), key=lambda unit_s: abs(math.log(scale / unit_s)))
    return best if 1.0 / TOLERANCE < scale / best < TOLERANCE else None


def _refuse_clock(path: Path, name: str, found: Clocked) -> None:
    """What grows with every entry, several times over, is the time since the start."""
    step_s = found.step_s
    if len(step_s) >= FEWEST_GROWING and bool((np.diff(step_s) > 0).all()) and step_s[-1] > 3.0 * step_s[0]:
        raise DataError(
            f"{path} {name!r}: grows with every entry, as the time since the start does and step times do not. If it is a clock, "
            "call it wall_time."
        )
