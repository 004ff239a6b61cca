"""A grid of jobs as lines of plain text, or as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence

from ....study.table import StudyRow
from ...quantity import with_error
from ...table import Table
from ...types.studies.sweep import SweepReport
from .columns import Column, markdown_table, shown_columns

MOST_REASONS = 4  # of impossible jobs that are told
SIZE = "cluster.n_devices"


def lines(report: SweepReport) -> list[str]:
    """The report, line by line."""
    best = next((row for row in report.rows if row.is_best), None)
    told = [f"best by {report.objective}: {_words(report, best)}"] if best else []
    notes = [*_reasons(report), *(f"note: {note}" for note in report.notes)]
    legend = "* best   = not told apart from it by these draws   ! does not fit into memory   ± Monte Carlo error"
    return [*_table(report).lines(), legend, *told, *notes, f"seed {report.record.seed}; {report.elapsed_s:.1f} s"]


def markdown(report: SweepReport) -> list[str]:
    """The table alone, as Markdown."""
    return markdown_table(_table(report))


def _table(report: SweepReport) -> Table:
    known = [row.figures for row in report.rows if row.figures is not None]
    shown = [column for column in shown_columns(known) if column.name != "GPUs" or SIZE not in report.axes]
    columns = ("", *map(short, report.axes), *(column.name for column in shown), "relative")
    title = f"{report.job}: {len(report.rows):,} jobs, by {report.objective}"
    return Table(title, columns, [_cells(row, shown, report.axes) for row in report.rows])


def _cells(row: StudyRow, shown: Sequence[Column], axes: Sequence[str]) -> tuple[str, ...]:
    own, labels = row.figures, tuple(row.settings.get(axis, "") for axis in axes)
    if own is None:
        return ("", *labels, *("" for _ in shown), "impossible")
    mark = "*" if row.is_best else "=" if row.is_tied else ""
    ratio, error = with_error(row.relative, row.relative_error)
    relative = "1.00" if row.is_best else f"{ratio} ± {error}"
    return (mark + ("" if own.fits else "!"), *labels, *(column.text(own) for column in shown), relative)


def _reasons(report: SweepReport) -> list[str]:
    """Why jobs are impossible: each reason once, with the first job that has it."""
    first = {row.problem: row for row in reversed(report.rows) if row.problem}
    told = [f"impossible: {_words(report, row)}: {reason}" for reason, row in list(first.items())[::-1]]
    more = [f"and {len(told) - MOST_REASONS} more reasons (--json has all)"] if len(told) > MOST_REASONS else []
    return [*told[:MOST_REASONS], *more]


def short(field: str) -> str:
    """The last word of a field: tp of plan.tp."""
    return field.rsplit(".", 1)[-1]


def _words(report: SweepReport, row: StudyRow) -> str:
    return ", ".join(f"{short(axis)} {row.settings[axis]}" for axis in report.axes) or report.job
