"""A sweep as a picture: the objective of every job, a line for every combination of the other axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...report.types.studies.sweep import SweepReport
from ...study.table import StudyRow, StudyTable
from ..figure import new_axes
from ..style import style

MOST_LINES = 12  # in the legend


def plot_sweep(table: StudyTable, title: str) -> Figure:
    """p50 with its model interval on the left, the objective relative to the best job on the right."""
    with style():
        figure = Figure(figsize=(12.0, 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left")
        left, right = figure.subplots(1, 2)
        plot_along(table, lambda row: row.figures.p50_s if row.figures else np.nan, ax=left).set_ylabel(
            "median step time (s)"
        )
        left.set_title("Median, and where 90 % of measured medians lie")
        plot_along(table, lambda row: row.relative, with_band=False, ax=right).set_ylabel("relative to the best job")
        right.set_title(f"By {table.objective}")
    return figure


def plot_along(
    table: StudyTable, value: Callable[[StudyRow], float], *, with_band: bool = True, ax: Axes | None = None
) -> Axes:
    """Values along the longest axis of the grid; impossible jobs are gaps.

    Args:
        value: of a row; NaN where there is none.
        with_band: draws the model interval of the median.
    """
    ax = new_axes() if ax is None else ax
    along = _longest(table)
    ticks = list(dict.fromkeys(row.settings.get(along, "") for row in table.rows))
    lines: dict[str, list[StudyRow]] = {}
    for row in table.rows:
        rest = ", ".join(f"{_short(field)} {text}" for field, text in row.settings.items() if field != along)
        lines.setdefault(rest, []).append(row)
    for number, (name, rows) in enumerate(lines.items()):
        at = np.array([ticks.index(row.settings.get(along, "")) for row in rows])
        values = np.array([value(row) for row in rows])
        drawn = ax.plot(at, values, "o-", markersize=4, label=name if number < MOST_LINES else None)
        if with_band:
            low, high = (
                np.array([getattr(row.figures, end) if row.figures else np.nan for row in rows])
                for end in ("model_low", "model_high")
            )
            ax.fill_between(at, values * low, values * high, color=drawn[0].get_color(), alpha=0.12, lw=0.0)
    ax.set_xticks(range(len(ticks)), ticks)
    ax.set_xlabel(_short(along))
    if len(lines) > 1:
        ax.legend()
    return ax


def _longest(table: StudyTable) -> str:
    """The axis with the most values; the first of several."""
    counts = {axis: len({row.settings[axis] for row in table.rows}) for axis in table.axes}
    return max(counts, key=lambda axis: counts[axis]) if counts else ""


def _short(field: str) -> str:
    return field.rsplit(".", 1)[-1]


def draw(report: SweepReport) -> Figure:
    """The objective of every job."""
    return plot_sweep(report.parts, report.job)
