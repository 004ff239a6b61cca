"""Reads the step times of a log that nobody has described: by its labelled numbers, whatever trainer wrote it.

Numbers of steps, step times, rates and clocks are gathered by name (`labelled`). What is surest is read: a reported step time or
rate of steps; a time with a plain name ("time", "dt"); the rate in a bar of tqdm; the clock; a rate of work together with the
clock or with the work of a step. The clock is also the judge: it tells a unit that nothing says, tells the time of an interval
from that of one step, and overrules a number that it contradicts. Lines that several ranks print are one step, as slow as its
slowest rank.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Floats
from ...core.errors import DataError
from ...core.units import format_s
from ...trace.step_log import StepLog
from .labelled import BAR_RATE, BAR_STEP, FRACTION, UNLABELLED, Line, read_line
from .log_entries import MAX_ENTRIES, MAX_STEP_S, NAN, THREE_DIGITS, Clocked, grows, interval, step_log, steps_by_clock
from .quantities import QuantityKind, is_mean, rank_of
from .scalars import assumed_unit, unit_that_fits

MOST_NAMES = 2000
MOST_LINES_OF_ENTRY = 300  # that follow the line with its step
SOME = 0.2  # share of the lines that number a step that must have a time with a plain name
ENOUGH = 0.5  # share of the entries of the most frequent quantity that another must have to be preferred
AGREES = 1.15  # factor within which a bar's rate and its clock are one
FACTOR = 3.0  # within which a reported time and the clock may differ: evaluations, checkpoints
COARSE = 0.02  # resolution of a clock, of a step, from which rates say more than the clock does
MEANS_OF_RUN = ("train_speed(",)  # ms-swift: since the start; a bar next to them says more
PAUSE = re.compile(
    r"[Ss]av(?:ing|ed)\b.{0,60}checkpoint|[Cc]heckpoint.{0,40}\bsav|validate step|[Rr]unning [Ee]valuation|\b[Ee]valuating\b"
    r"|eval_loss"
)
_PAUSE_BYTES = (b"heckpoint", b"valuat", b"validate", b"eval_loss")


@dataclass
class Column:
    """Numbers of one name and counter, and the entries that they belong to."""

    kind: QuantityKind
    has_unit: bool
    n_apart: int = 0  # numbers on another line than that of the step
    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


class Reading(NamedTuple):
    """Step times of a log, and how they were found.

    Attributes:
        log: the step times.
        is_reported: whether the log holds them, rather than a clock.
    """

    log: StepLog
    is_reported: bool


class _Entry(NamedTuple):
    """A line that numbers a step: its place among the entries, the counter of its step, its number, names of what was taken."""

    row: int
    series: str
    line: int
    names: set[str]


class LabelledLog:
    """Gathers the labelled numbers of a log line by line.

    Args:
        path: of the log, for messages.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: dict[tuple[str, str, bool], Column] = {}
        self._line_kinds: dict[tuple[str, ...], int] = {}
        self._ranks: dict[str, int] = {}
        self._numbers = array("q")
        self.clock_s, self.rank, self.pauses, self.form = array("d"), array("i"), array("i"), array("i")
        self.resolution_s = 0.0
        self._n_pauses, self._series = 0, ""
        self._open: dict[str, _Entry] = {}  # rank -> its last entry

    def __len__(self) -> int:
        return len(self.clock_s)

    def take(self, line: bytes, number: int) -> None:
        """Reads a line."""
        text = line.decode("utf-8", "replace")
        if any(word in line for word in _PAUSE_BYTES) and PAUSE.search(text):
            self._n_pauses += 1
        said = read_line(text)
        if said.series and said.series != self._series:
            self._n_pauses += 1  # another bar: an evaluation, a checkpoint
            self._series = said.series
        if not said.found:
            return
        if any(one.kind == QuantityKind.STEP for one in said.found):
            self._begin(said, number)
            return
        last = self._open.get(said.rank)
        if last is None or number - last.line > MOST_LINES_OF_ENTRY:
            return
        sure = [
            one.kind in (QuantityKind.TIME, QuantityKind.STEP_RATE) and not one.name.startswith(UNLABELLED)
            for one in said.found
        ]
        if said.goes_on or all(sure):
            self._add(said, last, apart=True)

    def _begin(self, said: Line, number: int) -> None:
        if len(self) >= MAX_ENTRIES:
            raise DataError(f"{self.path}: more than {MAX_ENTRIES:,} step times. Cut the log.")
        entry = _Entry(len(self), said.series, number, set())
        form = tuple(one.name for one in said.found)
        known = self._line_kinds.setdefault(form, len(self._line_kinds)) if len(self._line_kinds) < MOST_NAMES else -1
        self._numbers.append(number)
        self.clock_s.append(said.clock_s)
        self.resolution_s = max(self.resolution_s, said.resolution_s)
        self.rank.append(self._ranks.setdefault(said.rank, len(self._ranks)) if len(self._ranks) < 2**20 else 0)
        self.pauses.append(self._n_pauses)
        self.form.append(known)
        if said.rank in self._open or len(self._open) < MOST_NAMES:
            self._open[said.rank] = entry
        self._add(said, entry)

    def _add(self, said: Line, entry: _Entry, *, apart: bool = False) -> None:
        for one in said.found:
            if one.name in entry.names or one.kind == QuantityKind.CLOCK:
                continue
            has_unit = one.unit_s is not None
            key = entry.series, one.name, has_unit
            if key not in self.columns and len(self.columns) >= MOST_NAMES:
                continue
            column = self.columns.setdefault(key, Column(one.kind, has_unit))
            entry.names.add(one.name)
            column.n_apart += apart
            value = one.value
            if one.kind in (QuantityKind.STEP_RATE, QuantityKind.WORK_RATE):
                value /= one.unit_s or 1.0
            elif one.unit_s is not None:
                value *= one.unit_s
            column.rows.append(entry.row)
            column.values.append(value)

    def without_times(self) -> str:
        """Message on the steps of the log, where it does not say how long they took; empty where it has none."""
        n = max((len(column.rows) for column in self.columns.values() if column.kind == QuantityKind.STEP), default=0)
        rates = [name for (_, name, _), column in self.columns.items() if column.kind == QuantityKind.WORK_RATE]
        if n == 0:
            return ""
        counted = "1 numbered line" if n == 1 else f"{n:,} numbered lines"
        work = f" {rates[0]!r} becomes a time with --work-per-step N." if rates else ""
        return (
            f"{counted}{{of}}, but not how long steps took: no step time, no rate of steps, no two lines with a time of day "
            f"between which training went on.{work}"
        )

    def place(self, entry: int) -> str:
        """File and line of an entry."""
        return f"{self.path}:{self._numbers[entry]}"

    def read(self, per_step: float | None = None, unit_s: float | None = None) -> Reading | None:
        """The step times that the log holds; None where it holds none.

        Args:
            per_step: work of a step (tokens, samples), by which a rate becomes a time.
            unit_s: seconds of the unit of a time that has none.

        Raises:
            DataError: a time whose unit nothing tells.
        """
        return _Choice(self, per_step, unit_s).made()


class _Values(NamedTuple):
    """A quantity with the counter of steps that it belongs to: [value] entry, step and number."""

    series: str
    name: str
    column: Column
    counter: str
    entry: NDArray[np.int64]
    step: NDArray[np.int64]
    value: Floats

    def of(self, kept: NDArray, value: Floats | None = None) -> _Values:
        """Some of the values (flags or indices), or other ones of the same entries."""
        return self._replace(
            entry=self.entry[kept], step=self.step[kept], value=(self.value if value is None else value)[kept]
        )

    @property
    def is_positive(self) -> NDArray[np.bool_]:
        """[value] whether it can be a time or a rate."""
        return np.isfinite(self.value) & (self.value > 0)


class _Choice:
    """Choice of the numbers of a log that are its step times."""

    def __init__(self, log: LabelledLog, per_step: float | None, unit_s: float | None) -> None:
        self.log, self.per_step, self.unit_s = log, per_step, unit_s
        self.clock_s, self.resolution_s = np.array(log.clock_s), log.resolution_s
        self.rank, self.pauses, self.form = (np.array(one, np.int64) for one in (log.rank, log.pauses, log.form))
        self.notes: list[str] = []

    def made(self) -> Reading | None:
        found = [values for key in self.log.columns if (values := self._beside_steps(key)) is not None]
        times = [
            one
            for one in found
            if one.column.kind in (QuantityKind.TIME, QuantityKind.STEP_RATE, QuantityKind.PLAIN_TIME)
        ]
        most = max((len(one.entry) for one in times if one.name != BAR_RATE), default=0)
        bars = [one for one in times if one.name == BAR_RATE]
        frequent = [one for one in times if one.name != BAR_RATE and len(one.entry) >= ENOUGH * most]
        frequent = [one for one in frequent if one.column.kind != QuantityKind.PLAIN_TIME or self._is_usual(one)]
        if bars:
            frequent = [one for one in frequent if not one.name.startswith(MEANS_OF_RUN)]
        frequent += sorted(bars, key=lambda one: -len(one.entry))[:1]
        refusal: DataError | None = None
        for one in sorted(frequent, key=_sureness):
            self.notes = []
            try:
                read = self._reported(one)
            except DataError as error:
                refusal = refusal or error
                continue
            if read is not None:
                return read
        by_clock = self._by_clock(found)
        if by_clock is None and refusal is not None:
            raise refusal
        return by_clock

    def _is_usual(self, one: _Values) -> bool:
        """Whether a time with a plain name stands on more than a few of the lines that number a step."""
        counted = max(len(column.rows) for column in self.log.columns.values() if column.kind == QuantityKind.STEP)
        return len(one.entry) >= SOME * counted

    # --- A quantity beside its counter -------------------------------------------------------------------------------

    def _beside_steps(self, key: tuple[str, str, bool]) -> _Values | None:
        series, name, _ = key
        column = self.log.columns[key]
        if column.kind == QuantityKind.STEP:
            return None
        rows, values = np.array(column.rows, np.int64), np.array(column.values)
        best: tuple[tuple[bool, int], _Values] | None = None
        for (of, counter, _), steps in self.log.columns.items():
            if of != series or steps.kind != QuantityKind.STEP:
                continue
            numbered = np.array(steps.rows, np.int64)
            both, first, second = np.intersect1d(numbered, rows, assume_unique=True, return_indices=True)
            if len(both) == 0:
                continue
            step = np.array(steps.values, np.float64)[first].astype(np.int64)
            repeats = _share_of_repeats(step, self.rank[both])
            order = -1 if counter == BAR_STEP and name == BAR_RATE else rank_of(counter) + 100 * (counter == FRACTION)
            rank = (2 * len(both) < len(rows) or repeats > 0.1, order)
            if best is None or rank < best[0]:
                best = rank, _Values(series, name, column, counter, both, step, values[second])
        return None if best is None else best[1]

    # --- Reported times ----------------------------------------------------------------------------------------------

    def _reported(self, one: _Values) -> Reading | None:
        """The step times in a quantity; None where it contradicts the clock, or grows as a clock does."""
        good = one.is_positive
        if 2 * good.sum() <= len(good):
            first = int(np.flatnonzero(~good)[0])
            place = self.log.place(int(one.entry[first]))
            raise DataError(f"{place} {one.name}: {one.value[first]:g} s is not a step time. Remove the line.")
        if not good.all():
            self.notes.append(f"{int((~good).sum())} entries whose {one.name} is no positive time are left out")
            one = one.of(good)
        step_s = 1.0 / one.value if one.column.kind == QuantityKind.STEP_RATE else one.value
        merged = self._over_ranks(one, step_s)
        step_s = merged.value
        if one.column.kind != QuantityKind.STEP_RATE and grows(step_s):
            return self._differences(merged)
        by_clock = self._clocked(merged)
        typical = None if len(by_clock.step) == 0 else float(np.median(by_clock.step_s))
        if one.name == BAR_RATE and typical is not None and self.resolution_s <= COARSE * typical:
            self.notes.append("by the clock of the bar, whose rates are smoothed")
            return Reading(self._log(by_clock._replace(notes=(*self.notes, *by_clock.notes)), one), is_reported=True)
        if not one.column.has_unit:
            step_s = step_s * self._unit(one, step_s, typical)
        single = self._of_one_step(merged, step_s, typical)
        if single is None:
            return None
        step_s, n_steps = single
        if not (step_s < MAX_STEP_S).all():
            raise DataError(f"{self.log.path} {one.name!r}: {step_s.max():g} s is not a step time. Remove the line.")
        if _has_three_digits(one.value):
            self.notes.append(THREE_DIGITS)
        if one.name == BAR_RATE:
            self.notes.append("rates in the bar are smoothed over the last few steps: single slow steps look shorter")
        return Reading(self._log(Clocked(merged.step, step_s, n_steps, tuple(self.notes)), one), is_reported=True)

    def _differences(self, one: _Values) -> Reading | None:
        """The step times in a time that grows with every entry: the time since the start; None where a finer clock is there."""
        if not one.column.has_unit:
            return None
        ticks = next(
            (tick for tick in (1.0, 1e-1, 1e-2, 1e-3) if (abs(one.value / tick % 1.0 - 0.5) > 0.499).all()), 0.0
        )
        if np.isfinite(self.clock_s[one.entry]).all() and self.resolution_s < ticks:
            return None
        clocked = steps_by_clock(one.step, one.value, self.pauses[one.entry], ticks)
        if len(clocked.step) == 0:
            return None
        self.notes.append(f"{one.name} is the time since the start: steps are differences")
        return Reading(self._log(clocked._replace(notes=(*self.notes, *clocked.notes[1:])), one), is_reported=True)

    def _unit(self, one: _Values, step_s: Floats, typical: float | None) -> float:
        """Seconds of the unit of a time that says none: as stated, as the clock has it, or as is likely."""
        if self.unit_s is not None:
            return self.unit_s
        if typical is not None:
            unit_s, note = unit_that_fits(typical / float(np.median(step_s)), one.name, "the clock")
            if unit_s is not None:
                self.notes.append(note)
                return unit_s
        unit_s, note = assumed_unit(step_s, one.name, str(self.log.path))
        self.notes.append(note)
        return unit_s

    def _of_one_step(
        self, merged: _Values, step_s: Floats, typical: float | None
    ) -> tuple[Floats, NDArray[np.int32]] | None:
        """Seconds per step and the steps that they are a mean of; None where the clock says something else."""
        gaps = interval(merged.step)
        apart = float(np.median(gaps[1:])) if len(gaps) > 2 else 1.0
        mean = is_mean(merged.name) or merged.name == BAR_RATE
        n_steps = gaps if mean else np.ones(len(gaps), np.int32)
        if typical is None:
            if apart > 1.0 and not mean:
                self.notes.append(f"entries are {apart:.0f} steps apart; each counts as the time of a single step")
            return step_s, n_steps
        ratio = float(np.median(step_s)) / typical
        if apart > 1.0 and not mean:
            if abs(np.log(ratio / apart)) < np.log(1.2) < abs(np.log(ratio)):
                self.notes.append(f"{merged.name} is that of the {apart:.0f} steps between two entries, by the clock")
                return step_s / gaps, gaps
            self.notes.append(f"entries are {apart:.0f} steps apart; each counts as the time of a single step")
        bound = AGREES if merged.name == BAR_RATE else FACTOR
        if not 1.0 / bound < ratio < bound:
            return None
        if ratio < 0.8:
            self.notes.append(
                f"by the clock a step takes {format_s(typical)}, {1.0 / ratio:.2f} times as long: not all is in {merged.name}"
            )
        return step_s, n_steps

    def _over_ranks(self, one: _Values, step_s: Floats) -> _Values:
        """Each step once, as slow as the slowest rank that printed it."""
        rank = self.rank[one.entry]
        again = _occurrence(rank, one.step)
        kept: dict[tuple[int, int], int] = {}
        slowest, entries = step_s.copy(), []
        for index, key in enumerate(zip(again.tolist(), one.step.tolist(), strict=True)):
            first = kept.setdefault(key, index)
            if first == index:
                entries.append(index)
            elif one.name == BAR_RATE:
                slowest[first] = step_s[index]
            else:
                slowest[first] = max(slowest[first], step_s[index])
        n_more = len(step_s) - len(entries)
        if n_more:
            n_ranks = len(np.unique(rank))
            of = f" ({n_ranks} ranks)" if n_ranks > 1 else ""
            which = "last" if one.name == BAR_RATE else "slowest"
            self.notes.append(f"{n_more} entries repeat the step before them{of}; the {which} of each step was taken")
        return one.of(np.array(entries, np.int64), slowest)

    # --- The clock ---------------------------------------------------------------------------------------------------

    def _clocked(self, one: _Values) -> Clocked:
        """The time between the lines of these entries."""
        return steps_by_clock(one.step, self.clock_s[one.entry], self.pauses[one.entry], self.resolution_s)

    def _by_clock(self, found: Sequence[_Values]) -> Reading | None:
        """Steps by the clock, or by a rate of work where that says more."""
        rates = sorted((one for one in found if one.column.kind == QuantityKind.WORK_RATE), key=_sureness)
        self.notes = []
        if rates and self.per_step is not None:
            return self._by_work(rates[0], self.per_step)
        lines = self._numbered_lines()
        if lines is None:
            return None
        clocked = self._clocked(lines)
        if len(clocked.step) == 0:
            return None
        coarse = self.resolution_s > COARSE * float(np.median(clocked.step_s))
        if coarse and rates and (read := self._by_work(rates[0], None)) is not None:
            return read
        return Reading(self._log(clocked._replace(notes=(*self.notes, *clocked.notes)), lines), is_reported=False)

    def _numbered_lines(self) -> _Values | None:
        """Lines of the commonest form that number a step, of one rank."""
        best: _Values | None = None
        for (series, name, _), column in self.log.columns.items():
            if column.kind != QuantityKind.STEP:
                continue
            entry, step = np.array(column.rows, np.int64), np.array(column.values).astype(np.int64)
            timed = np.isfinite(self.clock_s[entry])
            entry, step = entry[timed], step[timed]
            if len(entry) < 2:
                continue
            for of in (self.form, self.rank):
                usual = Counter(of[entry].tolist()).most_common(1)[0][0]
                entry, step = entry[of[entry] == usual], step[of[entry] == usual]
            last = np.append(np.diff(step) != 0, True)
            entry, step = entry[last], step[last]
            values = _Values(series, name, column, name, entry, step, np.full(len(entry), NAN))
            if best is None or _most_steps(values) > _most_steps(best):
                best = values
        return best

    def _by_work(self, one: _Values, per_step: float | None) -> Reading | None:
        """The work of a step over its rate; the work is stated, or such that the times add up to those of the clock."""
        one = one.of(one.is_positive)
        if len(one.entry) < 2:
            return None
        merged = self._over_ranks(one, 1.0 / one.value)
        gaps = interval(merged.step)
        if per_step is None:
            clocked = self._clocked(merged)
            if len(clocked.step) == 0:
                return None
            ends = np.searchsorted(merged.step, clocked.step) if (np.diff(merged.step) > 0).all() else None
            if ends is None:
                return None
            before = np.concatenate(([0.0], np.cumsum(merged.value * gaps)))
            begins = np.searchsorted(merged.step, clocked.step - clocked.n_steps)
            spent = before[ends + 1] - before[begins + 1]
            works = clocked.step_s * clocked.n_steps / spent
            per_step = float(np.median(works))
            if np.quantile(works, 0.9) > 1.2 * np.quantile(works, 0.1):
                return None
            self.notes.append(
                f"step times from {one.name}, scaled to the clock, which is coarser ({self.resolution_s:g} s)"
            )
        else:
            self.notes.append(f"step times are {per_step:g} over {one.name}, as stated")
        found = Clocked(merged.step, per_step * merged.value, gaps, tuple(self.notes))
        return Reading(self._log(found, one), is_reported=True)

    def _log(self, found: Clocked, one: _Values) -> StepLog:
        how = f"by its labelled numbers: {one.counter!r}" + (f", {one.name!r}" if one.name != one.counter else "")
        return step_log(self.log.path, found, found.step, notes=(how,))


def _most_steps(one: _Values) -> tuple[int, int]:
    return len(np.unique(one.step)), -rank_of(one.name)


def _sureness(one: _Values) -> tuple[bool, int, int, int]:
    """Lower is surer: on the line of its step, a name that says more, more often there."""
    column = one.column
    kind = 2 * column.kind if one.name != BAR_RATE else 2 * QuantityKind.PLAIN_TIME + 1
    return 2 * column.n_apart > len(column.rows), kind, rank_of(one.name), -len(one.entry)


def _has_three_digits(value: Floats) -> bool:
    """Whether numbers that differ are written with three digits at most."""
    scale = 10.0 ** (2 - np.floor(np.log10(value)))
    return bool(np.allclose(value * scale, np.round(value * scale), rtol=1e-9)) and len(np.unique(value)) > 1


def _share_of_repeats(step: NDArray[np.int64], rank: NDArray[np.int64]) -> float:
    """Share of the entries of a rank that have the step of the one before."""
    order = np.argsort(rank, kind="stable")
    same = (np.diff(step[order]) == 0) & (np.diff(rank[order]) == 0)
    return float(same.mean()) if len(same) else 0.0


def _occurrence(rank: NDArray[np.int64], step: NDArray[np.int64]) -> NDArray[np.int64]:
    """[entry] how often the count of steps of its rank went back before it: runs that start over."""
    order = np.argsort(rank, kind="stable")
    same = np.diff(rank[order]) == 0
    back = np.concatenate(([0], np.cumsum((np.diff(step[order]) < 0) & same)))
    begins = np.concatenate(([0], np.flatnonzero(~same) + 1))
    of_rank = np.repeat(back[begins], np.diff(np.append(begins, len(order))))
    again = np.empty(len(step), np.int64)
    again[order] = back - of_rank
    return again
