"""Draws the workers of a recorded job, who slows the others down, and predicted with recorded step times.

Step times are distribution functions, with the interval that few steps leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError, printable
from ..core.picture import GREY, INDIGO, WINE, name_time_axis, new_figure, style
from ..core.readable import counted, first_few, time_to
from .comparison_report import TraceComparisonReport
from .kernel_report import TraceKernelsReport, short
from .prediction import LEVEL, PredictedCurve
from .prediction_report import PredictedCurves, TracePredictionReport, WhatIfReport

MOST_NUMBERED = 96  # workers; more would be a grey mass of digits
MOST_NAMED = 6  # worst workers


def plot_workers(by_worker: Floats, cells: Sequence[tuple[int, ...]], rank: NDArray, title: str) -> Figure:
    """Slowdown that every worker alone causes, by pipeline stage and data-parallel rank; a box marks the worst.

    Args:
        by_worker: [replica, stage] slowdown.
        cells: (replica, stage) of the worst workers.
        rank: [replica, stage] global rank of every worker.
        title: of the figure.
    """
    values = by_worker.T  # stages are rows
    n_stage, n_replica = values.shape
    with style():
        size = np.clip([2.8 + 0.28 * n_replica, 1.9 + 0.42 * n_stage], [5.2, 2.8], [13.0, 12.0])
        figure = new_figure((float(size[0]), float(size[1])))
        ax = figure.add_subplot()
        top = max(float(values.max()), 1.001)
        image = ax.imshow(values, cmap="OrRd", vmin=1.0, vmax=top, aspect="auto", interpolation="nearest")
        numbered = values.size <= MOST_NUMBERED
        ax.set_xlabel("data-parallel rank" + (" (in the cells: global rank)" if numbered else ""))
        ax.set_ylabel("stage")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, nbins=16, min_n_ticks=1))
        ax.grid(False)
        if numbered:
            _number(ax, values, rank, top)
        for replica, stage in cells:
            _box(ax, replica, stage, width=1.8 if numbered else 0.6)
        bar = figure.colorbar(image, ax=ax, label="slowdown", fraction=0.08, pad=0.02)
        bar.ax.ticklabel_format(useOffset=False)
        worst = first_few([str(rank[cell]) for cell in cells], MOST_NAMED)
        ax.set_title(f"{title}; worst {'rank' if len(cells) == 1 else 'ranks'} {worst}")
    return figure


def _number(ax: Axes, values: Floats, rank: NDArray, top: float) -> None:
    for (stage, replica), value in np.ndenumerate(values):
        colour = "white" if (value - 1.0) / (top - 1.0) > 0.6 else "#333333"
        ax.text(replica, stage, str(rank[replica, stage]), ha="center", va="center", size=8, color=colour)


def _box(ax: Axes, replica: int, stage: int, width: float) -> None:
    """Blue on white, so that it is seen on light and dark cells and at the border."""
    for colour, linewidth in (("white", 2 * width), (INDIGO, width)):
        box = Rectangle((replica - 0.5, stage - 0.5), 1.0, 1.0, fill=False, edgecolor=colour, linewidth=linewidth)
        box.set(clip_on=False, zorder=3)
        ax.add_patch(box)


def draw_workers(report: WhatIfReport) -> Figure:
    """Heat map of the workers.

    Raises:
        DataError: the report is of a version that did not keep where ranks are.
    """
    if report.ranks is None:
        raise DataError("this answer was saved by an older version, which did not keep where ranks are. Ask again.")
    rank = np.array(report.ranks)
    by_worker = np.array([[report.by_rank[str(one)] for one in replica] for replica in report.ranks])
    cells = [cell for worst in report.worst_ranks for cell in zip(*np.nonzero(rank == worst), strict=True)]
    return plot_workers(by_worker, cells, rank, f"{report.info.title}: S = {report.slowdown:.3f}")


MARKS = {"p50": (0.5, "o"), "p95": (0.95, "s"), "p99": (0.99, "^")}


def plot_trace_prediction(curves: PredictedCurves, title: str, other_job: str = "") -> Figure:
    """The prediction from all recorded steps; next to it, if there is one, a prediction from some steps and the steps held out.

    Args:
        curves: seconds.
        title: of the figure.
        other_job: what tells the predicted job from the recorded one, "16 replicas"; recorded steps are not drawn next to it.
    """
    fitted, held_out = curves.fitted, curves.held_out
    with style():
        figure = new_figure((12.0 if held_out else 7.4, 4.8), title)
        n_panel = 2 if held_out else 1
        first = figure.add_subplot(1, n_panel, 1)
        shown = replace(fitted, measured_s=()) if other_job else fitted
        _panel(first, shown, f"{counted(fitted.n_measured, 'step')} recorded")
        first.set_title(f"Predicted job: {other_job}" if other_job else "All recorded steps fitted")
        if held_out:
            second = figure.add_subplot(1, n_panel, 2, sharex=None if other_job else first)
            _panel(second, held_out, f"{counted(held_out.n_measured, 'step')} held out")
            second.set_title(f"Check{' on the recorded job' if other_job else ''}: steps that were not fitted")
        for ax in figure.axes:
            name_time_axis(ax.xaxis, "step time")
    return figure


def _panel(ax: Axes, curve: PredictedCurve, label: str) -> None:
    """One prediction, its band, and the measured steps, if any."""
    band = (
        f"{LEVEL:.0%} of samples of {counted(curve.n_band, 'step')}"
        if curve.n_band
        else f"{LEVEL:.0%} interval, long run"
    )
    ax.fill_betweenx(curve.level, curve.low_s, curve.high_s, color=INDIGO, alpha=0.18, linewidth=0, label=band)
    ax.plot(curve.middle_s, curve.level, color=INDIGO, label="predicted")
    for name, (p, marker) in MARKS.items():
        value = getattr(curve.marks_s, name)
        written = f"{name}  {time_to(value, value / 1e3)}"
        ax.plot(value, p, marker, color=INDIGO, markeredgecolor="white", zorder=4, label=written)
    if curve.measured_s:
        _measured(ax, np.array(curve.measured_s), label)
    ax.axhline(0.95, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_ylim(0.0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("steps that take at most this long")
    ax.grid(True)
    ax.legend(loc="lower right", handlelength=1.4)


def _measured(ax: Axes, ordered: Floats, label: str) -> None:
    share = np.arange(len(ordered) + 1) / len(ordered)
    ax.step([ordered[0], *ordered], share, where="post", color=WINE, linewidth=1.4, label=label)
    ax.plot(ordered, share[1:], "|", color=WINE, markersize=5)


def draw_trace_prediction(report: TracePredictionReport) -> Figure:
    """Recorded and predicted steps, and the check.

    Raises:
        DataError: the report is of a version that kept no curves.
    """
    if report.curves is None:
        raise DataError(
            "this prediction was saved by an older version, which kept no curves. Predict again to draw it."
        )
    return plot_trace_prediction(report.curves, f"{report.info.title}: unrecorded steps", report.asked.described())


MOST_DRAWN = 12  # kernels


def draw_kernels(report: TraceKernelsReport) -> Figure:
    """Time and cost of every kernel: shares of the time, and what its variation costs of the p95."""
    pools = list(report.pools[:MOST_DRAWN])[::-1]
    names = [printable(short(one)) for one in pools]
    with style():
        figure = new_figure((11.0, 1.6 + 0.3 * len(pools)), f"{report.info.title}: kernels")
        first, second = figure.subplots(1, 2, sharey=True)
        first.barh(names, [one.share for one in pools], color=GREY)
        first.set_xlabel("share of the time of kernels")
        second.barh(names, [(one.saved_p95_s or 0.0) / report.table.p95_s for one in pools], color=WINE)
        second.set_xlabel("share of the p95 that its variation costs")
        for ax in (first, second):
            ax.xaxis.set_major_formatter(PercentFormatter(1.0))
            ax.tick_params(axis="y", labelsize=7)
            ax.grid(True, axis="x")
    return figure


def draw_comparison(report: TraceComparisonReport) -> Figure:
    """Ratio of B to A along the runs, the interval of the typical step, and where the ratio changes.

    Raises:
        DataError: steps of the runs could not be paired.
    """
    if not report.points:
        raise DataError("the runs share few step numbers, so that there is no ratio along the runs to draw")
    step, ratio = (np.array(values) for values in zip(*report.points, strict=True))
    with style():
        figure = new_figure((7.0, 3.6))
        ax = figure.add_subplot()
        ax.axhline(1.0, color=GREY, linewidth=0.8)
        of_step = "95 % interval of the typical step"
        ax.axhspan(report.typical.low, report.typical.high, color=INDIGO, alpha=0.12, linewidth=0, label=of_step)
        ax.plot(step, ratio, ".", color=INDIGO, label="blocks of paired steps")
        if report.change is not None:
            ax.axvline(report.change.step, color=WINE, label=f"changes by {report.change.ratio - 1.0:+.1%}")
        ax.set_title(printable(report.verdict[0]), loc="left")
        ax.set_xlabel("step")
        ax.set_ylabel("step time of B over that of A")
        ax.legend()
    return figure
