"""Reads step times from rows of named scalars, whatever file they stand in: which name is the step, its time, the clock.

What a name says is in `quantities`. A step time comes first, then a rate of steps, a plain time next to steps, the clock, and a
rate of work (tokens/s) where the work of a step is stated. A unit that no name says is that which agrees with the clock; where
there is none, seconds, if as milliseconds no training step would be so short. Of several runs in one file the first is read,
and said so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ...core.arrays import Floats
from ...core.errors import DataError
from ...tables.column_map import columns_said
from ...tables.csv_rows import BadRows, is_plain
from ...tables.document import short
from ...trace.step_log import NOTHING_STATED, Stated, StepLog
from .log_entries import NAN, Clocked, Entries, Entry, elapsed_s, grows, interval, steps_by_clock, timestamp
from .quantities import (
    CLOCKS,
    NOT_TRAINING,
    STEPS,
    TIMES,
    UNITS,
    QuantityKind,
    is_clock,
    is_mean,
    is_step,
    is_time,
    kind_of,
    meaning,
)
from .rank_rows import RankTable

MOST_SHOWN = 12
SAY_UNIT = "State it with --unit s or --unit ms (`fit`: --unit duration=ms), or rename it, for example to step_time_s"
LOOKED_FOR = (
    "a step time (step_time_s, iteration_time_ms, elapsed_time_per_iteration_s, train/step_time_s, seconds, ...), a rate of "
    "steps (it/s, steps_per_second, ...) or the time of each entry (_timestamp, _runtime, wall_time, timestamp)"
)
SAY_COLUMN = "For another name, add --map NAME=step_time"
SAY_WORK = "State the tokens (samples) of a step with --work-per-step N"
RANKS = ("global_rank", "rank", "world_rank", "process_index", "process_id", "process_rank", "worker", "worker_id")
HOSTS = ("host", "hostname", "node", "node_name", "node_id", "node_rank", "node_key", "machine", "instance", "pod")
INDICES = ("local_rank", "gpu", "gpu_id", "gpu_index", "device", "device_id", "device_index", "local_gpu", "gpu_uuid")
PART = re.compile(r"(^|_)(time|duration|latency|wait|dt)$")
NO_PARTS = ("eta", "eval_time", "remaining", "total_time", "elapsed_time", "uptime", "wait_until")
MOST_PARTS = 50
FIELDS = {
    "step": "number of the step",
    "step_time": "its time; the name says the unit (step_time_ms), or --unit",
    "rate": "tokens or samples per second, with --work-per-step",
    "clock": "time of day, where no column holds the time of a step",
}  # what a name of a file can be said to be


@dataclass(frozen=True)
class ScalarNames:
    """Names in the file.

    Attributes:
        step: of the number of the step; None: entries are counted.
        time: of the step time, or of the rate; None: it follows from the clock.
        unit_s: of the step time, or of the time in the rate; None where its name does not say, and the clock has to.
        clock: of the time of the entry; None where there is none.
        clock_unit_s: None where its name does not say.
        is_mean: whether a time is a mean over the steps since the entry before.
        ranks: of what tells the ranks of a step apart, a global rank or a node and an index in it; empty where nothing does.
        parts_s: of seconds of parts of a step, "data_time", each with its unit in seconds.
        work: of a step, which a rate counts: 1 where it counts steps; None where `time` names a time.
        notes: what people should know.
        is_log: whether rows are the lines of a log, in the order of time.
    """

    step: str | None
    time: str | None
    unit_s: float | None
    clock: str | None
    clock_unit_s: float | None
    is_mean: bool
    ranks: tuple[str, ...] = ()
    parts_s: Mapping[str, float] = field(default_factory=dict)
    work: float | None = None
    notes: tuple[str, ...] = ()
    is_log: bool = False


def is_told(names: Sequence[str]) -> bool:
    """Whether among these names is a step time, a rate, or a clock together with steps."""
    steps = any(map(is_step, names))
    kinds = {kind_of(name, beside_steps=steps) for name in names}
    of_steps = {QuantityKind.CLOCK, QuantityKind.STEP_RATE, QuantityKind.WORK_RATE} if steps else set[QuantityKind]()
    return not kinds.isdisjoint({QuantityKind.TIME, QuantityKind.PLAIN_TIME} | of_steps)


def choose(names: Sequence[str], place: str, stated: Stated = NOTHING_STATED) -> ScalarNames:
    """Chooses the names to read in a file.

    Args:
        place: for messages.
        stated: what a person says of them.

    Raises:
        DataError: no step time, rate or clock, several that could be it, or a rate of work without the work of a step.
    """
    said = columns_said(names, stated.columns, FIELDS, place)
    free = [name for name in names if name not in said.values()]
    steps = [said["step"]] if "step" in said else _best(free, is_step, STEPS)
    beside = bool(steps)
    times = _best(free, lambda name: is_time(name, beside_steps=beside), TIMES)
    rates = [name for name in free if kind_of(name) == QuantityKind.STEP_RATE and not NOT_TRAINING.search(name)]
    works = [name for name in free if kind_of(name) == QuantityKind.WORK_RATE and not NOT_TRAINING.search(name)]
    clocks = [said["clock"]] if "clock" in said else _best(free, is_clock, CLOCKS)
    is_plain = bool(times) and kind_of(times[0]) == QuantityKind.PLAIN_TIME
    work: float | None = None
    if "step_time" in said or "rate" in said:
        times = [said.get("step_time", said.get("rate", ""))]
        work = None if "step_time" in said else stated.per_step or 1.0
    elif rates and beside and (not times or is_plain):
        times, work = rates, 1.0
    elif not times and works and (stated.per_step is not None or not clocks):
        times, work = works, stated.per_step
        if work is None:
            raise DataError(f"{place}: {_shown(works)} say no step time without the work of a step. {SAY_WORK}.")
    if not times and not clocks:
        raise DataError(
            f"{place}: no column of step times. Looked for {LOOKED_FOR}. There are {_shown(names)}. {SAY_COLUMN}."
        )
    times, notes = _one_of_runs(times, "the step time", place)
    if not times:
        clocks, notes = _one_of_runs(clocks, "the time of an entry", place)
    time = times[0] if times else None
    clock = clocks[0] if len(clocks) == 1 else None
    if time is None:
        unit_s = None
    elif work is None:
        unit_s = stated_unit(time, stated.unit_s, place)
    else:
        unit_s = meaning(time).unit_s or 1.0
    return ScalarNames(
        step=steps[0] if steps else None,
        time=time,
        unit_s=unit_s,
        clock=clock,
        clock_unit_s=None if clock is None else meaning(clock).unit_s,
        is_mean=time is not None and is_mean(time),
        ranks=rank_names(names),
        parts_s={} if time is None or unit_s is None or work else part_names(names, {*steps, *clocks, time}, unit_s),
        work=work,
        notes=notes,
    )


def _one_of_runs(names: list[str], what: str, place: str) -> tuple[list[str], tuple[str, ...]]:
    """The name that is read: of one quantity of several runs, that of the first; and what to say of it.

    Raises:
        DataError: several names of one run.
    """
    if len(names) <= 1:
        return names, ()
    runs = [meaning(name).run for name in names]
    if len(set(runs)) == len(runs) and all(runs):
        others = f"{_shown(runs[1:])}; --map {short(names[1])}=step_time reads another"
        return names[:1], (f"the run {runs[0]!r} of {len(runs)} is read, not {others}",)
    by_name = {meaning(name).base: name for name in reversed(names)}
    if len(by_name) > 1 and len(by_name) == len(names) and any(meaning(name).items for name in names):
        return names[:1], ()  # rates of steps under several names
    raise DataError(f"{place}: several could be {what}: {_shown(names)}. Keep one, or say which: --map NAME=step_time.")


def rank_names(names: Sequence[str]) -> tuple[str, ...]:
    """The columns that tell ranks apart: a global rank, or else a node and an index in it, or either; none if there are none."""
    of_base: dict[str, str] = {}
    for name in names:
        of_base.setdefault(meaning(name).base, name)
    whole, host, index = (
        next((of_base[base] for base in bases if base in of_base), None) for bases in (RANKS, HOSTS, INDICES)
    )
    return (whole,) if whole is not None else tuple(name for name in (host, index) if name is not None)


def part_names(names: Sequence[str], others: set[str], unit_s: float) -> dict[str, float]:
    """Columns of seconds other than the step time, and their units; `unit_s` is that of the step time, for names without one."""
    found: dict[str, float] = {}
    for name in names:
        said = meaning(name)
        words = said.base.split("_")
        is_part = said.unit_s is not None or PART.search(said.base) is not None
        if name in others or not is_part or "per" in words or said.base in (*NO_PARTS, *CLOCKS, *TIMES, *STEPS):
            continue
        if not NOT_TRAINING.search(name) and not name.endswith(("__MIN", "__MAX")) and len(found) < MOST_PARTS:
            found[name] = unit_s if said.unit_s is None else said.unit_s
    return found


def stated_unit(name: str, unit_s: float | None, place: str) -> float | None:
    """Seconds of the unit of a step time: what its name says, else what a person has stated.

    Raises:
        DataError: they contradict each other.
    """
    own = meaning(name).unit_s
    if own is not None and unit_s is not None and own != unit_s:
        raise DataError(f"{place} {name!r}: its name says another unit than --unit. Leave out --unit, or rename it.")
    return unit_s if own is None else own


def _best(names: Sequence[str], fits: Callable[[str], bool], order: Sequence[str]) -> list[str]:
    """The names that fit, of training rather than evaluation, of the first quantity in `order` that any is."""
    found = [name for name in names if fits(name)]
    found = [name for name in found if not NOT_TRAINING.search(name)] or found
    rank = {name: order.index(base) if (base := meaning(name).base) in order else len(order) for name in found}
    first = min(rank.values(), default=0)
    return [name for name in found if rank[name] == first]


def _shown(names: Sequence[str]) -> str:
    short = [repr(name[:60]) for name in names[:MOST_SHOWN]]
    return ", ".join(short) + (", ..." if len(names) > MOST_SHOWN else "")


Value: TypeAlias = float | int | str | None
BLANKS = frozenset(("", "nan", "null", "none", "n/a", "-"))
TOLERANCE = 3.0  # factor between a step time and the clock, either way, within which a unit is believed
GOES_BACK = 0.1  # share of the rows in which a clock may go back: where a run starts over
UNIT_NAMES = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}


class ScalarRow(NamedTuple):
    """Scalars that were logged together, by name, and where they stand; `wrong` says why a row cannot be read."""

    place: str
    values: Mapping[str, Value]
    wrong: str = ""


def read_scalars(path: Path, chosen: ScalarNames, rows: Iterable[ScalarRow], what: str, framework: str = "") -> StepLog:
    """The step times in `rows`. Rows that cannot be used are left out, counted and named in a note.

    Args:
        chosen: which names are what.
        what: the kind of file, for the notes.

    Raises:
        DataError: no row holds a step time, most rows are bad, or nothing tells the unit.
    """
    table, bad, resolution_s = RankTable(path, tuple(chosen.parts_s), is_log=chosen.is_log), BadRows(path), math.inf
    for row in rows:
        try:
            if row.wrong:
                raise DataError(f"{row.place}: {row.wrong}")
            entry = _entry(row, chosen)
        except DataError as error:
            bad.add(error)
            continue
        if entry is not None:
            resolution_s = min(resolution_s, entry.resolution_s)
            rank = ":".join(str(row.values.get(name, "")).strip() for name in chosen.ranks)
            table.add(entry, rank, [_part(row, name) * unit_s for name, unit_s in chosen.parts_s.items()])
    bad.check(len(table))
    if len(table) == 0:
        named = chosen.time or chosen.clock
        raise DataError(f"{path}: no row holds a value of {named!r}. Export the run again.")
    entries, ranks, said = table.entries()
    entries.resolution_s = (
        resolution_s if resolution_s >= 1.0 else 0.0
    )  # whole seconds; finer ones are as fine as written
    notes = [what, *chosen.notes, *bad.notes, *said]
    if chosen.time is None:
        _refuse_no_clock(path, str(chosen.clock), entries)
        found = entries.clocked()
        if len(found.step) == 0:
            raise DataError(f"{path}: no two rows between which time passed and steps were made, by {chosen.clock!r}.")
        return entries.step_log(found, framework=framework, notes=tuple(notes))
    found, unit_s, unit_note = _in_seconds(entries, chosen, path)
    notes += unit_note
    if chosen.work is None:
        _refuse_clock(path, chosen.time, found)
    log = entries.step_log(found, framework=framework, notes=tuple(notes))
    return replace(log, ranks=None if ranks is None else replace(ranks, step_s=ranks.step_s * unit_s))


def _entry(row: ScalarRow, chosen: ScalarNames) -> Entry | None:
    """None for a row without the value."""
    value = NAN if chosen.time is None else _number(row, chosen.time)
    clock_s, resolution_s = (NAN, 0.0) if chosen.clock is None else _clock(row, chosen.clock, chosen.clock_unit_s)
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
    if chosen.work is not None:
        value = chosen.work * (chosen.unit_s or 1.0) / value
    return Entry(step, seconds=value, clock_s=clock_s, resolution_s=resolution_s)


def _number(row: ScalarRow, name: str) -> float:
    value = row.values.get(name)
    if value is None or isinstance(value, bool):
        return NAN
    if isinstance(value, str):
        if name.endswith("/max_steps"):  # "10/100", as ms-swift writes steps
            value = value.partition("/")[0]
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


def _part(row: ScalarRow, name: str) -> float:
    """Seconds of a part of a step; NaN for what is no number: parts are read in addition to the step time and end no file."""
    try:
        value = _number(row, name)
    except DataError:
        return NAN
    return value if math.isfinite(value) else NAN


def _clock(row: ScalarRow, name: str, unit_s: float | None) -> tuple[float, float]:
    """Seconds, and how finely they are written.

    A number without a unit counts in s, or in ms or us where it is too large for that since 1970.
    """
    value = row.values.get(name)
    if isinstance(value, str) and (found := elapsed_s(value) or timestamp(value)) is not None:
        return found
    number = _number(row, name)
    if unit_s is not None or math.isnan(number):
        return number * (unit_s or 1.0), 0.0
    return number * (1.0 if abs(number) < 1e11 else 1e-3 if abs(number) < 1e14 else 1e-6), 0.0


def _in_seconds(entries: Entries, chosen: ScalarNames, path: Path) -> tuple[Clocked, float, list[str]]:
    """Step times, by what they were multiplied, and what to say of that."""
    found = entries.timed(is_mean=chosen.is_mean)
    if chosen.work is not None:
        return found, 1.0, _of_work(chosen)
    gaps = interval(found.step)
    notes = []
    if not chosen.is_mean and len(gaps) > 2 and float(np.median(gaps[1:])) > 1.0:
        notes.append(f"entries are {np.median(gaps[1:]):.0f} steps apart; each counts as the time of a single step")
    unit_s = chosen.unit_s
    if unit_s is None:
        unit_s, note = _unit(found, entries, chosen, path)
        notes.append(note)
    return found._replace(step_s=found.step_s * unit_s), unit_s, notes


def _unit(found: Clocked, entries: Entries, chosen: ScalarNames, path: Path) -> tuple[float, str]:
    """The unit of a time that says none: that which agrees with the clock, or the one that is likely; and a note."""
    name = str(chosen.time)
    scale = clock_scale(found, entries) if chosen.clock is not None and chosen.step is not None else None
    if scale is None:
        return assumed_unit(found.step_s, name, str(path))
    unit_s, note = unit_that_fits(scale, name, str(chosen.clock))
    if unit_s is None:
        raise DataError(
            f"{path} {name!r}: nothing says the unit: its name does not, and no unit fits {chosen.clock!r}. {SAY_UNIT}."
        )
    return unit_s, note


def _of_work(chosen: ScalarNames) -> list[str]:
    return [] if chosen.work == 1.0 else [f"step times are {chosen.work:g} over {chosen.time}, as stated"]


def clock_scale(found: Clocked, entries: Entries) -> float | None:
    """Factor by which step times agree with the clock, at the median of steps that both time; None without a clock."""
    clocked = steps_by_clock(found.step, entries.clock_s, np.zeros(len(found.step), np.int64), entries.resolution_s)
    if len(clocked.step) == 0:
        return None
    both = np.isin(found.step, clocked.step)  # the clock times nothing before its first entry
    return float(np.median(clocked.step_s)) / float(np.median(found.step_s[both]))


def unit_that_fits(scale: float, name: str, clock: str) -> tuple[float | None, str]:
    """Seconds of the unit in which step times agree with the clock, None where none does; and a note that says so."""
    best = min(set(UNITS.values()), key=lambda unit_s: abs(math.log(scale / unit_s)))
    if not 1.0 / TOLERANCE < scale / best < TOLERANCE:
        return None, ""
    return best, f"{name} is in {UNIT_NAMES[best]}, by {clock}"


SHORTEST_STEP = (
    10.0  # of a time without a unit, up to which it is taken for seconds: as ms, a step would take less than .01 s
)


def assumed_unit(step_s: Floats, name: str, place: str) -> tuple[float, str]:
    """The unit of a time that nothing tells: seconds, where the times would be too short for milliseconds; and a note.

    Raises:
        DataError: both are possible.
    """
    typical = float(np.median(step_s))
    if not 0.01 <= typical < SHORTEST_STEP:
        raise DataError(f"{place} {name!r}: nothing says the unit. {SAY_UNIT}.")
    return (
        1.0,
        f"assumed: {name} is in seconds, since {typical:.4g} ms would be too short for a step (--unit says another)",
    )


def _refuse_no_clock(path: Path, name: str, entries: Entries) -> None:
    """Refuses as a clock a column that goes back again and again."""
    gaps = np.diff(entries.clock_s)
    if (gaps < 0).sum() > max(GOES_BACK * len(gaps), 1):
        raise DataError(
            f"{path} {name!r}: goes back in {int((gaps < 0).sum())} of {len(gaps) + 1} rows, as no clock does. If it is the step "
            f"time, say so: --map {short(name)}=step_time."
        )


def _refuse_clock(path: Path, name: str, found: Clocked) -> None:
    """Refuses as step times a column that grows with every entry: it is the time since the start."""
    if grows(found.step_s):
        raise DataError(
            f"{path} {name!r}: grows with every entry, as the time since the start does and step times do not. If it is a clock, "
            "call it wall_time."
        )
