"""Predicted against measured step times as pictures: of tables one point per row, of logs the steps of every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from ..core.errors import DataError
from ..core.picture import (
    CYAN,
    GREEN,
    GREY,
    INDIGO,
    OLIVE,
    PURPLE,
    ROSE,
    SAND,
    TEAL,
    WINE,
    name_time_axis,
    new_axes,
    new_figure,
    style,
)
from ..core.units import format_s
from .calibration_report import SiteReport
from .log_report import LogRun, LogValidationReport
from .report import StepsValidationReport

if TYPE_CHECKING:
    from ..trace.step_log import StepPoints
    from .score import RowResult

COLOURS = (INDIGO, ROSE, TEAL, SAND, PURPLE, GREEN, CYAN, OLIVE, WINE)  # of the largest groups; the others are grey
OTHERS = "other"
BANDS = {0.10: 0.55, 0.25: 0.28}  # relative error: opacity
FURTHEST = 0.5  # relative error at the end of the axis of the second panel


def plot_accuracy(rows: Sequence[RowResult]) -> Figure:
    """Left predicted against measured, right which share of rows has at most a given error.

    Args:
        rows: rows without a prediction, or with a known defect, are left out.
    """
    scored = [row for row in rows if row.error is not None and not row.defect]
    names = groups(scored)
    with style():
        figure = new_figure((11.0, 5.6))
        left, right = figure.subplots(1, 2, width_ratios=(1.15, 1.0))
        plot_predicted(scored, names, ax=left)
        plot_errors(scored, names, ax=right)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, markerscale=2.0)
    return figure


def groups(rows: Sequence[RowResult]) -> dict[str, str]:
    """Source -> group that it is shown as: itself under a short name if it is among the largest, else `OTHERS`."""
    largest = [name for name, _ in Counter(row.source for row in rows).most_common(len(COLOURS))]
    return {row.source: short(row.source) if row.source in largest else OTHERS for row in rows}


def plot_predicted(rows: Sequence[RowResult], names: dict[str, str], *, ax: Axes | None = None) -> Axes:
    """Points, the diagonal, and bands of relative error around it."""
    ax = new_axes(6.0, 6.0) if ax is None else ax
    times = np.array([(row.measured_s, row.predicted_s) for row in rows], dtype=float).reshape(-1, 2)
    span = np.array([0.7 * times.min(), 1.4 * times.max()]) if times.size else np.array([0.1, 10.0])
    for band, alpha in BANDS.items():
        low, high = span * (1.0 - band), span * (1.0 + band)
        ax.fill_between(span, low, high, color=GREY, alpha=alpha, linewidth=0, label=f"± {band:.0%}")
    ax.plot(span, span, color="#444444", linewidth=1.0)
    shown = [names[row.source] for row in rows]
    for name, colour in palette(names).items():
        mine = times[[index for index, group in enumerate(shown) if group == name]]
        ax.plot(*mine.T, ".", color=colour, markersize=3.5, alpha=0.8, label=name, rasterized=True)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(*span)
    ax.set_ylim(*span)
    for axis, name in ((ax.xaxis, "measured"), (ax.yaxis, "predicted")):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        name_time_axis(axis, f"{name} step time")
    return ax


def plot_errors(rows: Sequence[RowResult], names: dict[str, str], *, ax: Axes | None = None) -> Axes:
    """Share of rows with at most a given error: all of them, and each group."""
    ax = new_axes() if ax is None else ax
    for name, colour in palette(names).items():
        _steps(ax, [abs(row.error or 0.0) for row in rows if names[row.source] == name], colour, 1.0)
    _steps(ax, [abs(row.error or 0.0) for row in rows], "black", 2.4)
    ax.plot([], [], color="black", linewidth=2.4, label="all rows")
    for band in BANDS:
        ax.axvline(band, color=GREY, linestyle="--", linewidth=1.0)
    ax.set_xlim(0.0, FURTHEST)
    ax.set_ylim(0.0, 1.02)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(True)
    ax.set_xlabel("error of the prediction, either way")
    ax.set_ylabel("rows with at most this error")
    ax.legend(loc="lower right")
    return ax


def palette(names: dict[str, str]) -> dict[str, str]:
    """Group -> colour, largest first; `OTHERS` below them all."""
    own = [name for name in dict.fromkeys(names.values()) if name != OTHERS]
    rest = {OTHERS: GREY} if OTHERS in names.values() else {}
    return rest | dict(zip(own, COLOURS, strict=False))


def short(source: str) -> str:
    """The name of a source without what stands in brackets."""
    plain = source.split(" (")[0].strip()
    return plain if len(plain) <= 30 else plain[:29] + "…"


def _steps(ax: Axes, errors: Sequence[float], colour: str, width: float) -> None:
    level = np.arange(len(errors) + 1) / max(len(errors), 1)
    ax.step([0.0, *np.sort(errors)], level, where="post", color=colour, linewidth=width)


def draw_accuracy(report: StepsValidationReport) -> Figure:
    """Predicted against measured, and which share of rows has at most a given error."""
    return plot_accuracy(report.rows)


MOST_RUNS = 6  # panels


def draw_log(report: LogValidationReport) -> Figure:
    """The steps of every run over its iterations, and how they are distributed, with what the head predicts.

    Raises:
        DataError: the report is of a version that kept no steps.
    """
    if report.points is None:
        raise DataError("this answer was saved by an older version, which kept no steps. Validate again to draw it.")
    known = [(run, steps) for run, steps in zip(report.runs, report.points, strict=True) if steps is not None]
    with style():
        n = min(len(known), MOST_RUNS)
        figure = new_figure((9.0, 0.8 + 2.9 * max(n, 1)))
        panels = figure.subplots(max(n, 1), 2, squeeze=False, sharey="row", width_ratios=(3.2, 1.0))
        for (left, right), (run, steps) in zip(panels, known, strict=False):
            _plot_run(run, steps, left, right)
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
        if len(known) > n:
            figure.suptitle(f"{n} of {len(known)} runs")
    return figure


def _plot_run(run: LogRun, steps: StepPoints, left: Axes, right: Axes) -> None:
    """One run: points over iterations, and the share of its steps by their time."""
    left.plot(steps.step, steps.step_s, ".", color="#444444", markersize=5, label="measured steps", rasterized=True)
    weights = np.array(steps.stands_for) / sum(steps.stands_for)
    right.hist(steps.step_s, bins=30, orientation="horizontal", color=GREY, weights=weights)
    found, title = run.predicted, [f"lines {run.first_line} to {run.last_line}, {run.trainer}: {run.verdict}"]
    lines = {"measured median": (None if run.measured is None else run.measured.median_s, "black", "--")}
    lines["of it one update of the actor"] = run.compared_s, ROSE, "--"
    lines["predicted median"] = None if found is None else found.p50_s, INDIGO, "-"
    for name, (seconds, colour, line) in lines.items():
        if seconds is not None:
            title.append(f"{name.removesuffix(' median')} {format_s(seconds)}")
            for ax in (left, right):
                ax.axhline(seconds, color=colour, linewidth=1.2, linestyle=line, label=name)
    if found is not None:
        for ax in (left, right):
            ax.axhspan(found.low_s, found.high_s, color=INDIGO, alpha=0.15, linewidth=0, label="predicted, 90%")
    left.set_title("; ".join(title), loc="left", fontsize="medium")
    left.set_xlabel("step")
    left.set_ylim(bottom=0.0)
    right.set_xlabel("share of steps")
    right.xaxis.set_major_formatter(PercentFormatter(1.0))
    name_time_axis(left.yaxis, "step time")


def draw_site(report: SiteReport) -> Figure:
    """Errors of the measured runs before and after the calibration, and how the error falls with their number."""
    ranked = sorted(report.runs, key=lambda run: -abs(run.error_before))[:MOST_DRAWN]
    places = np.arange(len(ranked))[::-1]
    with style():
        figure = new_figure((11.0, max(3.4, 1.6 + 0.24 * len(ranked))), report.card().verdict)
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
        shown = {"shipped": ("error_before", GREY, "o"), "calibrated": ("error_after", INDIGO, "o")}
        shown["calibrated without this run"] = "error_left_out", ROSE, "D"
        for name, (field, colour, marker) in shown.items():
            left.plot([getattr(run, field) for run in ranked], places, marker, color=colour, markersize=5, label=name)
        left.axvline(0.0, color="#444444", linewidth=1.0)
        left.set_yticks(places, [short(run.id) for run in ranked])
        left.xaxis.set_major_formatter(PercentFormatter(1.0))
        left.set_xlabel("error of the predicted step")
        left.legend(loc="best")
        curve = report.curve
        right.plot([one.n_run for one in curve], [one.median_ape for one in curve], "o-", color=INDIGO)
        right.set_ylim(0.0, 1.1 * max(0.01, *(one.median_ape for one in curve)))
        right.yaxis.set_major_formatter(PercentFormatter(1.0))
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        right.set_xlabel("runs used; 0: the shipped calibration")
        right.set_ylabel("median error of unused runs")
    return figure


MOST_DRAWN = 25  # runs, those that were furthest off first
