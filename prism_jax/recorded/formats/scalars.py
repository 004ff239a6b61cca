"""Reads step times from rows of named scalars, whatever file they stand in: which name is the step, its time, the clock.

"run-7 - train/step_time", "perf/step_time_seconds" and "Step Time (ms)" are one quantity: what stands before " - " is the run,
what stands before "/" is a group, what stands in brackets is a unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ...core.errors import DataError
from ...tables.csv_rows import is_plain
from ...tables.document import short
from ...trace.step_log import StepLog
from .log_entries import NAN, Clocked, Entries, Entry, interval, steps_by_clock, timestamp
from .rank_rows import RankRows

UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "usecs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
}
STEPS = (
    "global_step",
    "trainer_global_step",
    "train_step",
    "step",
    "steps",
    "iteration",
    "iterations",
    "iter",
    "_step",
)
TIMES = (
    "step_time",
    "steptime",
    "time_per_step",
    "train_step_time",
    "train_step_timing_in",
    "train_step_timing",
    "step_duration",
    "step",
    "per_step",
    "iteration_time",
    "iter_time",
    "time_per_iteration",
    "time_per_iter",
    "elapsed_time_per_iteration",
    "iteration_duration",
    "per_iteration",
    "per_iter",
    "iteration",
    "iter",
    "end_to_end",
    "measured_step_time",
)
PLAIN_TIMES = ("duration", "time", "batch_time", "dt", "")  # times of a step only beside its number
MEANS = ("end_to_end", "iteration_time", "elapsed_time_per_iteration")  # over the steps since the entry before
CLOCKS = (
    "_timestamp",
    "_runtime",
    "timestamp",
    "wall_time",
    "walltime",
    "runtime",
    "relative_time",
    "time_elapsed",
    "elapsed",
)
RANKS = ("global_rank", "rank", "world_rank", "process_index", "process_id", "process_rank", "worker", "worker_id")
HOSTS = ("host", "hostname", "node", "node_name", "node_id", "node_rank", "node_key", "machine", "instance", "pod")
INDICES = ("local_rank", "gpu", "gpu_id", "gpu_index", "device", "device_id", "device_index", "local_gpu", "gpu_uuid")
PART = re.compile(r"(^|_)(time|duration|latency|wait|dt)$")
NO_PARTS = ("eta", "eval_time", "remaining", "total_time", "elapsed_time", "uptime", "wait_until")
MOST_PARTS = 50
NOT_TRAINING = re.compile(r"(^|[/_ ])(eval|evaluation|val|validation|test|valid)([/_ ]|$)", re.IGNORECASE)
_BRACKETS = re.compile(r"\s{0,3}[\[(]\s{0,3}([^\])]{1,20})[\])]\s{0,3}$")
LONGEST = 300  # characters of a name that are looked at


class Meaning(NamedTuple):
    """What a name says.

    Attributes:
        base: the quantity without run, group and unit: "step_time".
        unit_s: seconds of its unit; None where the name says none.
        run: what stands before " - "; empty if nothing does.
    """

    base: str
    unit_s: float | None
    run: str


def meaning(name: str) -> Meaning:
    """What `name` says."""
    run, _, rest = name[-LONGEST:].strip().rpartition(" - ")
    rest = rest.rpartition("/")[2]
    brackets = _BRACKETS.search(rest)
    unit = None if brackets is None else UNITS.get(brackets[1].strip().lower())
    if brackets is not None:
        rest = rest[: brackets.start()]
    spaced = re.sub(r"([a-z])([A-Z])", r"\1_\2", rest.strip())
    base = re.sub(r"[^a-z0-9_]{1,50}", "_", spaced.lower()).rstrip("_")
    words = base.split("_")
    if unit is None and words[-1] in UNITS:
        return Meaning("_".join(words[:-1]).rstrip("_"), UNITS[words[-1]], run)
    if unit is None and words[0] in UNITS and len(words) > 1 and words[1] == "per":  # ms_per_step
        return Meaning("_".join(words[1:]), UNITS[words[0]], run)
    return Meaning(base, unit, run)


def is_step(name: str) -> bool:
    """Whether a scalar of this name is the number of a step."""
    found = meaning(name)
    return found.base in STEPS and found.unit_s is None


def is_time(name: str, *, beside_steps: bool) -> bool:
    """Whether a scalar of this name is the time of a step.

    Args:
        beside_steps: whether there are numbers of steps, so that "duration" is enough.
    """
    found = meaning(name)
    if (found.base in STEPS and found.unit_s is None) or name.endswith(("__MIN", "__MAX")):
        return False
    return found.base in TIMES or (
        beside_steps and found.base in PLAIN_TIMES and (found.base != "" or found.unit_s is not None)
    )


def is_clock(name: str) -> bool:
    """Whether a scalar of this name is the time of the entry."""
    return meaning(name).base in CLOCKS and not name.endswith(("__MIN", "__MAX"))


MOST_SHOWN = 12
SAY_UNIT = "State it with --unit s or --unit ms (`fit`: --unit duration=ms), or rename it, for example to step_time_s"
LOOKED_FOR = (
    "a step time (step_time_s, iteration_time_ms, elapsed_time_per_iteration_s, train/step_time_s, seconds, ...) or the time of "
    "each entry (_timestamp, _runtime, wall_time, timestamp)"
)


@dataclass(frozen=True)
class ScalarNames:
    """Names in the file.

    Attributes:
        step: of the number of the step; None: entries are counted.
        time: of the step time; None: it follows from the clock.
        unit_s: of the step time; None where its name does not say, and the clock has to.
        clock: of the time of the entry; None where there is none.
        clock_unit_s: None where its name does not say.
        is_mean: whether a time is a mean over the steps since the entry before.
        ranks: of what tells the ranks of a step apart, a global rank or a node and an index in it; empty where nothing does.
        parts_s: of seconds of parts of a step, "data_time", each with its unit in seconds.
    """

    step: str | None
    time: str | None
    unit_s: float | None
    clock: str | None
    clock_unit_s: float | None
    is_mean: bool
    ranks: tuple[str, ...] = ()
    parts_s: Mapping[str, float] = field(default_factory=dict)


def is_told(names: Sequence[str]) -> bool:
    """Whether among these names is a step time or a clock."""
    steps = any(map(is_step, names))
    return any(is_time(name, beside_steps=steps) or (steps and is_clock(name)) for name in names)


def choose(names: Sequence[str], place: str, unit_s: float | None = None) -> ScalarNames:
    """What is read of a file with these names.

    Args:
        place: for messages.
        unit_s: seconds of the unit of a step time whose name says none.

    Raises:
        DataError: no step time and no clock, several that could be it, or a unit that nothing tells.
    """
    steps = _best(names, is_step, STEPS)
    times = _best(names, lambda name: is_time(name, beside_steps=bool(steps)), TIMES)
    clocks = _best(names, is_clock, CLOCKS)
    if not times and not clocks:
        raise DataError(f"{place}: no column of step times. Looked for {LOOKED_FOR}. There are {_shown(names)}.")
    for what, found in (("the step time", times), ("the time of an entry", () if times else clocks)):
        if len(found) > 1:
            raise DataError(f"{place}: several could be {what}: {_shown(found)}. Keep one, or export one run.")
    time = times[0] if times else None
    clock = clocks[0] if len(clocks) == 1 else None
    unit_s = None if time is None else stated_unit(time, unit_s, place)
    if time is not None and unit_s is None and (clock is None or not steps):
        raise DataError(f"{place} {time!r}: nothing says the unit. {SAY_UNIT}.")
    return ScalarNames(
        step=steps[0] if steps else None,
        time=time,
        unit_s=unit_s,
        clock=clock,
        clock_unit_s=None if clock is None else meaning(clock).unit_s,
        is_mean=time is not None and meaning(time).base in MEANS,
        ranks=rank_names(names),
        parts_s={} if time is None or unit_s is None else part_names(names, {*steps, *clocks, time}, unit_s),
    )


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
    """Columns of seconds beside the step time, and their units; `unit_s` is that of the step time, for names that say none."""
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
FEWEST_GROWING = 10  # entries of which one tells a clock from step times
UNIT_NAMES = {1.0: "s", 1e-3: "ms", 1e-6: "us", 1e-9: "ns"}


class ScalarRow(NamedTuple):
    """Scalars that were logged together, by name, and where they stand."""

    place: str
    values: Mapping[str, Value]


def read_scalars(path: Path, chosen: ScalarNames, rows: Iterable[ScalarRow], what: str, framework: str = "") -> StepLog:
    """The step times in `rows`.

    Args:
        chosen: which names are what.
        what: the kind of file, for the notes.

    Raises:
        DataError: a value is not what its name says, no row holds a step time, or nothing tells the unit.
    """
    table = RankRows(path, tuple(chosen.parts_s))
    for row in rows:
        entry = _entry(row, chosen)
        if entry is not None:
            rank = ":".join(str(row.values.get(name, "")).strip() for name in chosen.ranks)
            table.add(entry, rank, [_part(row, name) * unit_s for name, unit_s in chosen.parts_s.items()])
    if len(table) == 0:
        named = chosen.time or chosen.clock
        raise DataError(f"{path}: no row holds a value of {named!r}. Export the run again.")
    entries, ranks, said = table.entries()
    notes = [what, *said]
    if chosen.time is None:
        found = entries.clocked()
        if len(found.step) == 0:
            raise DataError(f"{path}: no two rows between which time passed and steps were made, by {chosen.clock!r}.")
    else:
        found, unit_note = _in_seconds(entries, chosen, path)
        notes += unit_note
        _refuse_clock(path, chosen.time, found)
        if ranks is not None:
            ranks = replace(ranks, step_s=ranks.step_s * chosen.unit_s) if chosen.unit_s else None
    log = entries.step_log(found, framework=framework, notes=tuple(notes))
    return log if chosen.time is None else replace(log, ranks=ranks)


def _entry(row: ScalarRow, chosen: ScalarNames) -> Entry | None:
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


def _number(row: ScalarRow, name: str) -> float:
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


def _part(row: ScalarRow, name: str) -> float:
    """Seconds of a part of a step; NaN for what is no number: it is read beside the step time and ends no file."""
    try:
        value = _number(row, name)
    except DataError:
        return NAN
    return value if math.isfinite(value) else NAN


def _clock(row: ScalarRow, name: str, unit_s: float | None) -> float:
    """Seconds; a number without a unit counts in s, or in ms or us where it is too large for that since 1970."""
    value = row.values.get(name)
    if isinstance(value, str) and (found := timestamp(value)) is not None:
        return found[0]
    number = _number(row, name)
    if unit_s is not None or math.isnan(number):
        return number * (unit_s or 1.0)
    return number * (1.0 if abs(number) < 1e11 else 1e-3 if abs(number) < 1e14 else 1e-6)


def _in_seconds(entries: Entries, chosen: ScalarNames, path: Path) -> tuple[Clocked, list[str]]:
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
    """Seconds of the unit in which step times agree with the clock, at the median of steps that both time; None: in no unit."""
    clocked = steps_by_clock(found.step, entries.clock_s, np.zeros(len(found.step), np.int64), entries.resolution_s)
    if len(clocked.step) == 0:
        return None
    both = np.isin(found.step, clocked.step)  # the clock times nothing before its first entry
    scale = float(np.median(clocked.step_s)) / float(np.median(found.step_s[both]))
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
