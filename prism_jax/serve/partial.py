"""Rows of a command that has not ended, from the journal that it keeps: jobs of a study that are done, plans that lead a search.

A journal is looked into and not resumed, so whose it is does not matter; it is untrusted as every file, and bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..core.archive import Archive, kind_of, opened
from ..core.errors import DataError, printable
from ..core.kept_work import Expected
from ..core.page import Table
from ..core.readable import amount, duration, percent
from ..core.units import format_bytes
from ..study.journal import COLUMNS

MAX_BYTES = 1 << 28  # of a journal
MOST_ROWS = 1000  # that are shown
MOST_TEXT = 400  # characters of a label or a reason
REMEDY = "Wait until the command has saved again."
TASKS = {
    "tasks/positions": Expected("iu", (None,), 0),
    "tasks/rows": Expected("f", (None, len(COLUMNS)), may_be_nan=True),
    "tasks/problems": Expected("U", (None,)),
}
PLAN = ("value", "memory_bytes", "n_devices")  # figures of a plan
STUDY = ("p50_s", "p95_s", "tokens_per_s_per_gpu", "mfu", "memory_bytes")  # figures of a job that are shown


@dataclass(frozen=True)
class PartialRow:
    """A job or a plan.

    Attributes:
        label: what it is.
        figures: by the name that reports have for them; unknown ones are left out.
        problem: why it has none.
    """

    label: str
    figures: Mapping[str, float]
    problem: str = ""


@dataclass(frozen=True)
class PartialRows:
    """Rows so far.

    Attributes:
        rows: jobs in the order of the study, or plans from the best.
        n_done, n_all: jobs of a study; 0 of a search.
        objective, unit: of `value`; empty where the journal does not say.
    """

    rows: Sequence[PartialRow]
    n_done: int = 0
    n_all: int = 0
    objective: str = ""
    unit: str = ""

    def table(self) -> Table:
        """The rows as a table, whose figures are those that any row has."""
        if self.n_all:
            title = f"{self.n_done:,} of {self.n_all:,} jobs"
            return Table.named(title, "job", [(row.label, row) for row in self.rows], STUDY_COLUMNS)
        columns = {self.objective or "objective": lambda row: self._value(row.figures.get("value")), **PLAN_COLUMNS}
        return Table.named("Plans that lead so far", "plan", [(row.label, row) for row in self.rows], columns)

    def _value(self, value: float | None) -> str:
        if value is None:
            return ""
        return duration(value) if self.unit == "s" else f"{amount(value)} {self.unit}".rstrip()


def _figure(name: str, how: Callable[[float], str]) -> Callable[[PartialRow], str]:
    """The text of a figure of a row; empty where it is not known."""
    return lambda row: how(row.figures[name]) if name in row.figures else ""


STUDY_COLUMNS = {
    "p50": _figure("p50_s", duration),
    "p95": _figure("p95_s", duration),
    "tokens/s/GPU": _figure("tokens_per_s_per_gpu", amount),
    "MFU": _figure("mfu", percent),
    "memory": _figure("memory_bytes", format_bytes),
    "why not": lambda row: row.problem,
}
PLAN_COLUMNS = {
    "memory": _figure("memory_bytes", format_bytes),
    "GPUs": _figure("n_devices", "{:,.0f}".format),
}
NO_ROWS = PartialRows(())


def partial_rows(journal: str | Path) -> PartialRows:
    """The rows in a journal as it is now; none where there is no journal yet, or one of a command that keeps no rows.

    Raises:
        DataError: the file is damaged.
    """
    try:
        found = os.stat(journal)
    except OSError:
        return NO_ROWS
    return _rows(str(journal), found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _rows(path: str, _changed_ns: int, _size: int) -> PartialRows:
    """The rows of a file in one state of it."""
    readers = {"study": _of_study, "search": _of_search}
    kind = kind_of(path)
    if kind not in readers:
        return NO_ROWS
    with opened(path, kind, REMEDY, MAX_BYTES) as archive:
        return readers[kind](archive)


def _of_study(archive: Archive) -> PartialRows:
    arrays = []
    for name, expected in TASKS.items():
        arrays.append(archive.load(name))
        if problem := expected.problem(arrays[-1]):
            raise DataError(f"{name} is {problem}.")
    positions, figures, problems = arrays
    labels, n_all = archive.about.get("labels"), archive.about.get("n_tasks")
    if len({len(positions), len(figures), len(problems)}) > 1:
        raise DataError("its arrays are of unlike tasks.")
    labelled = labels if isinstance(labels, list) and len(labels) == len(positions) else positions.tolist()
    rows = []
    for at in np.argsort(positions, kind="stable")[:MOST_ROWS]:
        own = {name: float(figures[at, COLUMNS.index(name)]) for name in STUDY}
        known = {name: value for name, value in own.items() if np.isfinite(value)}
        rows.append(PartialRow(_line(labelled[at]), known, _line(problems[at])))
    return PartialRows(rows, len(positions), n_all if isinstance(n_all, int) and n_all > 0 else len(positions))


def _of_search(archive: Archive) -> PartialRows:
    best, about = archive.about.get("best", []), archive.about
    rows = []
    for one in best[:MOST_ROWS] if isinstance(best, list) else []:
        if not isinstance(one, dict):
            raise DataError("it tells of a plan that is none.")
        known = {name: float(one[name]) for name in PLAN if _is_number(one.get(name))}
        rows.append(PartialRow(_line(one.get("plan", "")), known))
    return PartialRows(rows, objective=_line(about.get("objective", "")), unit=_line(about.get("unit", "")))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < 1e30


def _line(value: Any) -> str:
    return printable(str(value))[:MOST_TEXT]
