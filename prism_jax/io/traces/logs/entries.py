"""`Entries`: what a log says of its steps, entry by entry, and the `StepLog` that follows from it.

An entry holds a step time, or the clock, or a rate of work. Step times come first; then the clock, because it holds everything
that happens between two entries; then the work of a step over its rate.
"""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...._typing import Floats
from ....errors import DataError
from ....recorded.trace.step_log import StepLog
from .clock import Clocked, steps_by_clock

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
        """Between the last entry and the next one no training went on for a while."""
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
        more = list(found.notes)
        if self.n_repeats:
            more.append(f"{self.n_repeats} entries repeat the step before them; the last of each step was taken")
        n_restarts = int((np.diff(np.array(self._step, np.int64)) < 0).sum()) if len(set(self._series)) == 1 else 0
        if n_restarts:
            more.append(f"the log starts over {n_restarts} times; steps that were run twice are in it twice")
        return StepLog(
            source=str(self.path),
            name=stem(self.path),
            step=found.step,
            step_s=found.step_s,
            n_steps=found.n_steps,
            notes=(*notes, *more),
            framework=framework,
        )


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
