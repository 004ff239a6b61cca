"""Rows of a study, and the state of a search, that a run has so far: read of its journal while it goes on or was stopped.

A journal holds numbers by the position of their job in the grid; what the jobs are follows from the words of the command. It is
untrusted like every file of the folder: of a bounded size, and nothing of it is shown that is not a number in its bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.archive import Archive, kind_of, opened
from ..core.errors import PrismError, printable
from ..core.page import Table
from ..core.units import format_bytes, format_s
from ..result.objective import OBJECTIVES
from ..shell.catalogue import Command
from ..study.axes import Axis, grid, sizes_of
from ..study.figures import JobFigures
from ..study.journal import COLUMNS as FIGURES, MOST
from ..study.report import COLUMNS, SIZE, of_figures, short
from ..study.table import StudyRow, study_table
from .command_fields import fields_of, filled_with

MOST_BYTES = 32 * 2**20
MOST_SHOWN = 100
MOST_TEXT = 400  # characters of a plan in words
STUDIES = ("sweep", "scale")
# names of rounds -> in words
ROUNDS = {"first": "first plans", "64": "{} draws", "256": "{} draws", "final": "{}, on fresh draws"}


class FoundRows(NamedTuple):
    """Rows or facts of a run that are known.

    Attributes:
        text: how much that is.
        tables: it.
    """

    text: str
    tables: tuple[Table, ...]


def partial_rows(command: Command, words: Sequence[str], journal: Path) -> FoundRows | None:
    """Reads what a run has so far.

    Args:
        words: of the run.
        journal: its file.

    Returns:
        None where there is nothing yet, or the command keeps nothing that can be shown.
    """
    if not journal.is_file() or journal.is_symlink():
        return None
    try:
        with opened(journal, kind_of(journal), "", MOST_BYTES) as archive:
            kind, filled = archive.about.get("kind"), filled_with(command, words)
            if command.name in STUDIES and kind == "study":
                return _of_study(command, filled, archive)
            return _of_search(command, filled, archive) if command.name == "search" and kind == "search" else None
    except PrismError:  # it is being replaced, or damaged: the command itself tells
        return None


def _of_study(command: Command, filled: Mapping[str, Sequence[str]], archive: Archive) -> FoundRows | None:
    """Jobs that are measured, best first."""
    labels = _labels(command.name, filled)
    positions = archive.load("tasks/positions")
    rows, problems = archive.load("tasks/rows"), archive.load("tasks/problems")
    if not (positions.shape == problems.shape == rows.shape[:1] and rows.shape[1:] == (len(FIGURES),)):
        return None
    known = (positions >= 0) & (positions < len(labels))
    if not known.any() or np.nanmax(np.abs(rows), initial=0.0) > MOST:
        return None
    texts = [printable(str(text)) for text in problems[known]]
    figures = [None if text else JobFigures(*map(float, row)) for text, row in zip(texts, rows[known], strict=True)]
    objective, unit = _objective(command, filled)
    settings = [labels[int(at)] for at in positions[known]]
    axes = list(labels[0])
    found = study_table(axes, settings, figures, texts, objective, unit)
    order = sorted(found.rows, key=lambda row: (row.figures is None, row.relative))
    shown = {heading: text for heading, text in COLUMNS.items() if heading != "GPUs" or SIZE not in axes}
    columns: dict[str, Any] = {
        **{short(axis): lambda row, axis=axis: row.settings.get(axis, "") for axis in axes},
        **of_figures(shown, "tokens"),
        "fits": lambda row: "" if row.figures is None else "yes" if row.figures.fits else "no",
        "over the best": _relative,
    }
    more = f"; the best {MOST_SHOWN} are below" if len(order) > MOST_SHOWN else ""
    text = f"{len(order):,} of {len(labels):,} jobs are done{more}. They are compared by {found.objective}."
    return FoundRows(text, (Table.of("Jobs so far, best first", order[:MOST_SHOWN], columns),))


def _relative(row: StudyRow) -> str:
    return f"impossible: {row.problem}" if row.figures is None else f"{row.relative:.3f}"


def _labels(name: str, filled: Mapping[str, Sequence[str]]) -> list[Mapping[str, str]]:
    """[position] field -> value of the jobs of a study, in the order in which it counts them."""
    texts = filled.get("set", ()) if name == "sweep" else filled.get("vary", ())
    gpus = _last(filled, "gpus", "")
    sizes = tuple(map(str, sizes_of(gpus))) if gpus else ()
    if name == "sweep":
        _, points = grid(texts, [Axis(SIZE, sizes)] if sizes else [])
        return [dict(point.labels) for point in points]
    _, points = grid(texts, option="--vary")
    return [{SIZE: size, **dict(point.labels)} for size in sizes for point in points]


def _last(filled: Mapping[str, Sequence[str]], name: str, usual: str) -> str:
    return next(reversed(filled.get(name, ())), usual)


def _of_search(command: Command, filled: Mapping[str, Sequence[str]], archive: Archive) -> FoundRows | None:
    """How many plans are screened, and how many of them were scored, with the best score of each round; the plans that lead."""
    if "screen/bound" not in archive.headers:
        return None
    bound, unit = archive.load("screen/bound"), _objective(command, filled)[1]
    rounds: list[tuple[str, str, str]] = []
    for name in archive.headers:
        round_of, _, item = name.partition("/")
        of_round = f"{round_of}/plans"
        words = next((words for begins, words in ROUNDS.items() if round_of.startswith(begins)), "")
        if item != "scores" or not words or of_round not in archive.headers:
            continue
        scores, n_plan = archive.load(name), archive.headers[of_round].shape[0]
        values = scores if scores.ndim == 1 else scores[:, 0]
        good = values[np.isfinite(values) & (values > 0)]
        if len(good):
            best = float(good.min())
            shown = format_s(best, 4) if unit == "s" else f"{best:.4g} {unit}"
            rounds.append((words.format(printable(round_of)[:20]), f"{len(scores):,} of {n_plan:,}", shown))
    text = f"{int(np.isfinite(bound).sum()):,} of {bound.size:,} plans can run and fit into memory."
    tables = (_leading(archive.about), Table("Rounds so far", ("round", "plans scored", "best"), rounds))
    return FoundRows(text, tuple(one for one in tables if one.rows))


def _leading(about: Mapping[str, Any]) -> Table:
    """Plans that the journal tells of, those that have come furthest first."""
    best, is_time = about.get("best"), about.get("unit") == "s"
    rows = [one for one in best[:MOST_SHOWN] if isinstance(one, dict)] if isinstance(best, list) else []
    columns = {
        printable(str(about.get("objective")))[:40]: _cell(
            "value", partial(format_s, digits=4) if is_time else "{:.4g}".format
        ),
        "memory": _cell("memory_bytes", format_bytes),
        "GPUs": _cell("n_devices", "{:,.0f}".format),
    }
    named = [(printable(str(row.get("plan")))[:MOST_TEXT], row) for row in rows]
    return Table.named("Plans that lead so far", "plan", named, columns)


def _cell(name: str, text: Callable[[float], str]) -> Callable[[Mapping[str, Any]], str]:
    """The text of a figure of a plan; empty where there is none."""
    return lambda row: text(row[name]) if _is_figure(row.get(name)) else ""


def _is_figure(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MOST


def _objective(command: Command, filled: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Name of what a study or a search minimises, and its unit."""
    usual = next(one.default for one in fields_of(command) if one.name == "objective")
    name = _last(filled, "objective", usual)
    return name, OBJECTIVES.named(name).unit if name in OBJECTIVES else "s"
