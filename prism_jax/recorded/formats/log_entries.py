"""Collects what a log says of its steps into a `StepLog`; `LineFormat` is how one framework writes a step on a line.

An entry holds a step time, or the clock, or a rate of work. Step times come first; then the clock, because it holds everything
that happens between two entries; then the work of a step over its rate. A clock that ticks in whole seconds says little of one
step of two seconds. So an interval spans at least 50 ticks, and its time is the mean over the steps in it. Intervals in which
training paused, or the count of steps went back, are left out.

Every pattern is bounded, so that a hostile line costs time in proportion to its length.
"""

from __future__ import annotations

import re
from array import array
from calendar import timegm
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Floats
from ...core.errors import DataError
from ...tables.document import short
from ...trace.step_log import StepLog

TICKS = 50  # that an interval lasts at least: both of its ends are known to one tick, its length to 2%
_DATE = re.compile(
    r"(?P<year>(?:19|20)\d\d)[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_US_DATE = re.compile(
    r"\b(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>20\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?"
)
_GLOG = re.compile(r"\b[IWEF](?P<month>[01]\d)(?P<day>[0-3]\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)\.(?P<f>\d{1,9})")


_SHORT = re.compile(  # without a year: loguru, vLLM, detectron2; or the time of day alone
    r"(?:(?<![\d-])(?P<month>\d\d)[-/](?P<day>\d\d) )?"
    r"(?<![\d:])(?P<h>[012]\d):(?P<m>[0-5]\d):(?P<s>[0-5]\d)(?:[.,](?P<f>\d{1,9}))?(?![\d:])"
)
_ELAPSED = re.compile(
    r"(?:(\d{1,4})(?:d| days?,) ?)?(?:(\d{1,4})h ?)?(?:(\d{1,4})m(?:in)? ?)?(?:(\d{1,5}(?:\.\d{1,9})?)s?)?"
    r"|(?:(\d{1,4}) days?, )?(\d{1,4}):(\d\d):(\d\d(?:\.\d{1,9})?)"
)


def elapsed_s(text: str) -> tuple[float, float] | None:
    """The duration that a text spells, "0:01:40" or "1h 2m 3s": seconds, and how finely it is written; None where it is none."""
    found = _ELAPSED.fullmatch(text.strip()[:60])
    if found is None or not any(found.groups()) or text.strip().replace(".", "").isdigit():
        return None
    days, hours, minutes, seconds, more, h, m, s = (float(part or 0.0) for part in found.groups())
    digits = (found[4] or found[8] or "").partition(".")[2]
    return 86_400.0 * (days + more) + 3600.0 * (hours + h) + 60.0 * (minutes + m) + seconds + s, 10.0 ** -len(digits)


class Clocked(NamedTuple):
    """Step times.

    Attributes:
        step: last step of the entry.
        step_s: seconds per step.
        n_steps: steps that it is a mean of.
        notes: what people should know.
    """

    step: NDArray[np.int64]
    step_s: Floats
    n_steps: NDArray[np.int32]
    notes: tuple[str, ...]


def timestamp(text: str, before: int | None = None) -> tuple[float, float] | None:
    """The last time of day in `text` before a place: seconds, and how finely it is written; None where there is none.

    Notes: a time without a zone counts as UTC; differences are all that is used.
    """
    head = text if before is None else text[:before]
    for pattern in (_DATE, _US_DATE, _GLOG, _SHORT):
        found = next(reversed(list(pattern.finditer(head))), None)
        if found is not None:
            part = found.groupdict()
            year = int(part.get("year") or 2000)  # glog writes none
            fields = (
                year,
                *(int(part.get(name) or 1) for name in ("month", "day")),
                *(int(part[name]) for name in "hms"),
            )
            if not (1 <= fields[1] <= 12 and 1 <= fields[2] <= 31):
                continue
            digits = part["f"] or ""
            return timegm((*fields, 0, 0, 0)) + float(f"0.{digits or 0}"), 10.0 ** -len(digits)
    return None


def steps_by_clock(step: NDArray[np.int64], clock_s: Floats, pauses: NDArray[np.int64], resolution_s: float) -> Clocked:
    """Step times from entries of one count of steps.

    Args:
        step: [entry] number.
        clock_s: [entry] seconds; NaN where unknown.
        pauses: [entry] how often training had paused before it.
        resolution_s: of the clock.
    """
    known = np.isfinite(clock_s)
    step, clock_s, pauses = step[known], clock_s[known], pauses[known]
    ends: list[int] = []
    starts: list[int] = []
    begin, n_paused = 0, 0
    for entry in range(1, len(step)):
        n, elapsed = step[entry] - step[entry - 1], clock_s[entry] - clock_s[entry - 1]
        if pauses[entry] != pauses[entry - 1]:
            n_paused += 1
            begin = entry
        elif n <= 0 or elapsed < 0:
            begin = entry
        elif clock_s[entry] - clock_s[begin] >= TICKS * resolution_s and clock_s[entry] > clock_s[begin]:
            starts.append(begin)
            ends.append(entry)
            begin = entry
    first, last = np.array(starts, np.int64), np.array(ends, np.int64)
    n_steps = (step[last] - step[first]).clip(1, 2**31 - 1)
    notes = ["step times by the clock, between successive entries: whatever happens between them is in it"]
    if resolution_s >= 1.0:
        notes.append(f"the clock ticks every {resolution_s:g} s, so times are means over at least {TICKS} s")
    if n_paused:
        notes.append(f"{n_paused} intervals with an evaluation or a checkpoint in them are left out")
    return Clocked(step[last], (clock_s[last] - clock_s[first]) / n_steps, n_steps.astype(np.int32), tuple(notes))


MAX_ENTRIES = 5_000_000
NAN = float("nan")


class Entry(NamedTuple):
    """One entry of a log.

    Attributes:
        step: its number; None where the log has none.
        seconds: of the step; NaN where it is not said.
        clock_s: time of the entry, seconds since any moment; NaN where it is not said.
        resolution_s: of the clock.
        rate: work per second; NaN where it is not said.
        n_steps: steps that `seconds` is a mean of; 0: as many as lie since the entry before, or one.
        series: entries of one log that count differently; those of the commonest series count.
    """

    step: int | None
    seconds: float = NAN
    clock_s: float = NAN
    resolution_s: float = 0.0
    rate: float = NAN
    n_steps: int = 0
    series: int = 0


class Entries:
    """Entries in the order of the log, 60 bytes each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n_repeats = 0
        self.n_pauses = 0
        self.resolution_s = 0.0
        self._step, self._n_steps, self._series, self._pauses = array("q"), array("q"), array("q"), array("q")
        self._seconds, self._clock_s, self._rate = array("d"), array("d"), array("d")

    def __len__(self) -> int:
        return len(self._step)

    def pause(self) -> None:
        """Marks a pause: between the last entry and the next one no training went on for a while."""
        self.n_pauses += 1

    def add(self, entry: Entry) -> None:
        """Takes `entry`; of entries of one step that follow each other (another rank, a bar drawn again), the last stays.

        Raises:
            DataError: too many.
        """
        step = (self._step[-1] + 1 if self._step else 1) if entry.step is None else entry.step
        if self._step and self._step[-1] == step and self._series[-1] == entry.series:
            self.n_repeats += 1
            self._drop_last()
        if len(self._step) >= MAX_ENTRIES:
            raise DataError(f"{self.path}: more than {MAX_ENTRIES:,} step times. Cut the log.")
        self._step.append(step)
        self._n_steps.append(entry.n_steps)
        self._series.append(entry.series)
        self._pauses.append(self.n_pauses)
        self._seconds.append(entry.seconds)
        self._clock_s.append(entry.clock_s)
        self._rate.append(entry.rate)
        self.resolution_s = max(self.resolution_s, entry.resolution_s)

    def _drop_last(self) -> None:
        for column in (self._step, self._n_steps, self._series, self._pauses):
            column.pop()
        for column in (self._seconds, self._clock_s, self._rate):
            column.pop()

    @property
    def clock_s(self) -> Floats:
        """[entry] time of day, seconds since any moment; NaN where it is not said."""
        return np.array(self._clock_s)

    @property
    def has_clock(self) -> bool:
        """Whether two entries hold a time of day."""
        return int(np.isfinite(np.array(self._clock_s)).sum()) > 1

    def timed(self, *, is_mean: bool) -> Clocked:
        """The step times that the log holds."""
        step, given = np.array(self._step, np.int64), np.array(self._n_steps, np.int64)
        n_steps = interval(step) if is_mean else np.ones(len(step), np.int32)
        return Clocked(step, np.array(self._seconds), np.where(given > 0, given, n_steps).astype(np.int32), ())

    def clocked(self) -> Clocked:
        """The time between entries over the steps between them. Where another series comes in between, there was a pause."""
        series = np.array(self._series, np.int64)
        chosen = series == Counter(self._series).most_common(1)[0][0]
        pauses = np.array(self._pauses, np.int64) + np.cumsum(~chosen)
        return steps_by_clock(
            np.array(self._step, np.int64)[chosen],
            np.array(self._clock_s)[chosen],
            pauses[chosen],
            self.resolution_s,
        )

    def by_rate(self, work: float) -> Clocked:
        """The work of a step over the rates."""
        step = np.array(self._step, np.int64)
        note = "step times from the work of a step over its rate, as the log has no time of day"
        return Clocked(step, work / np.array(self._rate), interval(step), (note,))

    def step_log(self, found: Clocked, *, framework: str, notes: tuple[str, ...]) -> StepLog:
        """The log with the step times in `found`."""
        repeats = f"{self.n_repeats} entries repeat the step before them; the last of each step was taken"
        told = found._replace(notes=(*found.notes, *([repeats] if self.n_repeats else [])))
        counted = np.array(self._step if len(set(self._series)) == 1 else [], np.int64)
        return step_log(self.path, told, counted, framework=framework, notes=notes)


def step_log(
    path: Path, found: Clocked, counted: NDArray[np.int64], *, framework: str = "", notes: tuple[str, ...] = ()
) -> StepLog:
    """The log with the step times in `found`.

    Args:
        counted: numbers of steps in the order of the log, which go back where it starts over.
        notes: what people should know, before the notes of `found`.
    """
    n_restarts = int((np.diff(counted) < 0).sum())
    restarts = f"the log starts over {n_restarts} times; steps that were run twice are in it twice"
    more = (*found.notes, *([restarts] if n_restarts else []))
    return StepLog(str(path), stem(path), found.step, found.step_s, found.n_steps, (*notes, *more), framework=framework)


def stem(path: Path) -> str:
    """Name of a file without `.gz` and its ending."""
    name = path.name
    name = name[:-3] if name.lower().endswith(".gz") else name
    return name.rsplit(".", 1)[0] or name


def interval(step: np.ndarray) -> np.ndarray:
    """Steps since the entry before; for the first after a (re)start, the usual interval if its number is a multiple of it."""
    since = np.diff(step)
    usual = Counter(since[since > 0].tolist()).most_common(1)
    every = usual[0][0] if usual else 1
    first = np.concatenate(([True], since < 0))
    since = np.concatenate(([1], since))
    started = np.where((step % every == 0) & (step > 0), every, 1)
    return np.where(first, started, since).clip(1, 2**31 - 1).astype(np.int32)


NUMBER = r"(?P<number>[-+0-9.eE]{1,30}|[nN]a[nN]|[-+]?inf)"
THREE_DIGITS = "the log prints times with three digits, so that single steps are known to 0.05-0.5%"
MAX_STEP_S = 1e7

Facts: TypeAlias = Mapping[str, float]
REPORTED, PARTS, CLOCK, WHOLE_RUN = range(4)
KINDS = {
    REPORTED: "reported",
    PARTS: "sum of its reported parts",
    CLOCK: "time between two lines",
    WHOLE_RUN: "mean of the whole run",
}


@dataclass(frozen=True)
class WorkPerStep:
    """Work of one step, by which a rate is turned into seconds.

    Attributes:
        facts: name -> what a line that says it contains, and what reads its value, None where it is not there after all.
        per_step: the work of a step in the unit of the rate, from those facts; None where one is missing.
        needs: in words, for the message.
    """

    facts: Mapping[str, tuple[bytes, Callable[[str], float | None]]]
    per_step: Callable[[Facts], float | None]
    needs: str


@dataclass(frozen=True)
class LineFormat:
    """Format in which one framework writes a step.

    Attributes:
        name: of the format, unique: "DeepSpeed step lines".
        framework: "DeepSpeed".
        looks_for: the part of the line that is looked for, in words, for messages.
        marker: what every such line contains, as written.
        parse: line and its place -> what it says; None for a line that is no step. Raises `DataError` for a time that is none.
        kind: `REPORTED` step times win over `PARTS` of steps, those over the `CLOCK`, that over one mean of the `WHOLE_RUN`.
        is_mean: whether a time is a mean over the steps since the entry before.
        pauses: what lines contain during which no training goes on; they matter for the clock.
        work: turns rates into seconds, where there is no clock.
        note: what people should know.
        patterns: all that `parse` and `work` search lines for.
    """

    name: str
    framework: str
    looks_for: str
    marker: bytes
    parse: Callable[[str, str], Entry | None]
    kind: int = REPORTED
    is_mean: bool = False
    pauses: tuple[bytes, ...] = ()
    work: WorkPerStep | None = None
    note: str = ""
    patterns: tuple[re.Pattern[str], ...] = field(default=(), repr=False)


def timed_line(
    field_name: str, time: re.Pattern[str], steps: tuple[re.Pattern[str], ...], unit_s: Mapping[str, float]
) -> Callable[[str, str], Entry | None]:
    """Reads lines that hold a step time.

    Args:
        field_name: of the time, for messages.
        time: pattern with the groups `number` and `unit`.
        steps: patterns of the number of the step; the first that is found counts.
        unit_s: seconds of a unit or suffix.
    """

    def parse(line: str, place: str) -> Entry | None:
        found = time.search(line)
        if found is None:
            return None
        step = step_number(steps, line, found.start())
        if step is None:
            return None
        return Entry(step, seconds_of(found, unit_s[found["unit"] or ""], field_name, place))

    return parse


def seconds_of(found: re.Match[str], unit_s: float, field_name: str, place: str) -> float:
    """The step time that a pattern with the group `number` has found, seconds.

    Raises:
        DataError: no number, or no step time; names the place and the field.
    """
    try:
        seconds = float(found["number"].replace(",", "")) * unit_s
    except ValueError:
        raise DataError(f"{place} {field_name}: {short(found[0])} is not a time") from None
    if not 0 < seconds < MAX_STEP_S:
        raise DataError(f"{place} {field_name}: {seconds:g} s is not a step time. Remove the line.")
    return seconds


def first_number(pattern: re.Pattern[str]) -> Callable[[str], float | None]:
    """Reads the number in the first group of a pattern."""

    def read(line: str) -> float | None:
        found = pattern.search(line)
        return float(found[1]) if found else None

    return read


def step_number(patterns: tuple[re.Pattern[str], ...], line: str, before: int) -> int | None:
    """The number that is nearest to a place: before it, else after it (progress bars of old steps may share the line)."""
    for pattern in patterns:
        earlier = list(pattern.finditer(line, 0, before))[-1:]
        later = pattern.search(line, before)
        for match in earlier or ([later] if later else []):
            return int(match[1])
    return None


FEWEST_GROWING = 10  # entries of which one tells a clock from step times


def grows(value: Floats) -> bool:
    """Whether numbers grow with every entry, several times over, as the time since the start does."""
    return len(value) >= FEWEST_GROWING and bool((np.diff(value) > 0).all()) and bool(value[-1] > 3.0 * value[0])
