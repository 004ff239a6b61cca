"""Rows of a table of step times, in any order: one per step, or one per step and rank. A step is its slowest rank.

Rows are brought into the order of their steps. A step that a rank has twice was run twice (the job started over): the first runs
of all steps come first, then the second ones, by the clock where there is one. Where a step is there once only, and steps go back
seldom, the order of the file stands: then the file is one log after another.

Rows of one step without a column that tells them apart are those of ranks all the same if nearly all steps have equally many and
they do not stand one run after another.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.arrays import Floats
from ...core.errors import DataError
from ...trace.rank_times import RankTimes, earlier, natural_order
from .log_entries import MAX_ENTRIES, Entries, Entry


class Steps(NamedTuple):
    """The entries of a log; what every rank and part took, None where nothing tells them apart; notes."""

    entries: Entries
    ranks: RankTimes | None = None
    notes: tuple[str, ...] = ()


MOST_RANKS = 200_000
SELDOM = 0.05  # of the rows: steps that go back more often stand in no order
ALIKE = 0.9  # of the steps that have equally many rows


class RankTable:
    """The rows of a table, 32 bytes each and 8 for every part.

    Args:
        parts: its columns of those.
        is_log: whether rows of one rank stand in the order of time, which says where runs start over where no clock does.
    """

    def __init__(self, path: Path, parts: Sequence[str] = (), *, is_log: bool = False) -> None:
        self.path, self._parts, self._is_log = path, {name: array("d") for name in parts}, is_log
        self._names: dict[str, int] = {}
        self._rank, self._step = array("q"), array("q")
        self._seconds, self._clock_s = array("d"), array("d")
        self._counted = True

    def __len__(self) -> int:
        return len(self._rank)

    def add(self, entry: Entry, rank: str = "", parts: Sequence[float] = ()) -> None:
        """Takes one row: step, seconds and clock of `entry`.

        Raises:
            DataError: too many rows, or ranks.
        """
        if len(self) >= MAX_ENTRIES:
            raise DataError(f"{self.path}: more than {MAX_ENTRIES:,} step times. Cut the log.")
        self._rank.append(self._names.setdefault(rank, len(self._names)))
        if len(self._names) > MOST_RANKS:
            raise DataError(f"{self.path}: more than {MOST_RANKS:,} ranks. Is it the right column?")
        self._counted = self._counted and entry.step is not None
        self._step.append(-1 if entry.step is None else entry.step)
        self._seconds.append(entry.seconds)
        self._clock_s.append(entry.clock_s)
        for values, value in zip(self._parts.values(), parts, strict=True):
            values.append(value)

    def entries(self) -> Steps:
        """The steps, what every rank and part took where rows tell, and notes.

        Raises:
            DataError: rows of several ranks without numbers of steps.
        """
        if not self._counted:
            if len(self._names) > 1:
                raise DataError(
                    f"{self.path}: rows of {len(self._names):,} ranks, but no column of step numbers: nothing says which "
                    "rows are of one step. Add a column step."
                )
            return self._as_they_stand()
        step = np.array(self._step, np.int64)
        names = natural_order(list(self._names))
        number = {name: i for i, name in enumerate(names)}
        rank = np.array([number[name] for name in self._names], np.int64)[np.array(self._rank, np.int64)]
        if len(names) > 1:
            return self._by_step(step, rank, tuple(names))
        if _are_ranks(step):
            return self._by_step(step, self._again(step, rank), ())
        return self._as_they_stand() if _stands_in_order(step) else self._by_step(step, rank, tuple(names))

    def _as_they_stand(self) -> Steps:
        found = Entries(self.path)
        for step, seconds, clock_s in zip(self._step, self._seconds, self._clock_s, strict=True):
            found.add(Entry(step if self._counted else None, seconds, clock_s))
        if found.n_repeats or not self._parts:
            return Steps(found)
        zero, entry = np.zeros(len(self), np.int64), np.arange(len(self))
        parts = {name: np.array(values) for name, values in self._parts.items()}
        return Steps(found, RankTimes(tuple(self._names), entry, zero, np.array(self._seconds), parts))

    def _again(self, step: NDArray[np.int64], rank: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts the rows of the same step and rank that come before a row, by clock and then by seconds [row]."""
        return earlier((step, rank), self._when(), np.array(self._seconds))

    def _when(self) -> Floats:
        """Time of a row, or its place where rows stand in order and have no time [row]."""
        clock_s = np.array(self._clock_s)
        return np.arange(float(len(clock_s))) if self._is_log and not np.isfinite(clock_s).all() else clock_s

    def _by_step(self, step: NDArray[np.int64], rank: NDArray[np.int64], names: tuple[str, ...]) -> Steps:
        """Steps as the maximum over ranks, whatever the order of rows; without `names`, ranks are not told apart."""
        again = self._again(step, rank)
        order = np.lexsort((rank, step, again))
        new = np.append(True, (np.diff(step[order]) != 0) | (np.diff(again[order]) != 0))
        starts = np.flatnonzero(new)
        seconds, clock_s = np.array(self._seconds)[order], np.array(self._clock_s)[order]
        step_s, end_s = np.fmax.reduceat(seconds, starts), np.fmax.reduceat(clock_s, starts)
        when = np.fmax.reduceat(self._when()[order], starts)
        run = np.arange(len(starts))
        if bool(again.any()) and bool(np.isfinite(when).all()):
            run = np.argsort(when, kind="stable")
        found = Entries(self.path)
        for i in run.tolist():
            found.add(Entry(int(step[order[starts[i]]]), float(step_s[i]), float(end_s[i])))
        notes = _notes(names, int(rank.max()) + 1, len(order), len(starts))
        if found.n_repeats or not names or not np.isfinite(seconds).all():
            return Steps(found, None, notes)
        entry = np.empty(len(starts), np.int64)
        entry[run] = np.arange(len(starts))
        of_row = entry[np.cumsum(new) - 1]
        sort = np.lexsort((rank[order], of_row))
        parts = {name: np.array(values)[order][sort] for name, values in self._parts.items()}
        return Steps(found, RankTimes(names, of_row[sort], rank[order][sort], seconds[sort], parts), notes)


def _stands_in_order(step: NDArray[np.int64]) -> bool:
    """Whether steps follow each other, or go back seldom and to steps that were run before."""
    back = int((np.diff(step) < 0).sum())
    return back == 0 or (back <= SELDOM * len(step) and len(np.unique(step)) < len(step))


def _are_ranks(step: NDArray[np.int64]) -> bool:
    """Whether nearly all steps have equally many rows, two at least, that are not one run after another."""
    _, counts = np.unique(step, return_counts=True)
    usual = int(np.bincount(counts).argmax())
    back = int((np.diff(step) < 0).sum())
    runs = back == usual - 1 and bool((np.diff(step) != 0).all())
    return usual > 1 and not runs and float((counts == usual).mean()) >= ALIKE


def _notes(names: tuple[str, ...], n_rank: int, n_row: int, n_step: int) -> tuple[str, ...]:
    if n_rank == 1:
        return ()
    missing = n_step * n_rank - n_row
    lack = f"; {missing:,} of {n_step * n_rank:,} rows are missing" if missing else ""
    what = f"{n_rank:,} ranks" if names else f"{n_rank:,} rows of every step, taken for ranks"
    return (f"{what}: a step is its slowest rank (the maximum over ranks){lack}",)
