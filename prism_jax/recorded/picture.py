"""Draws the workers of a recorded job, who slows the others down, and predicted beside recorded step times.

Step times are distribution functions, with the interval that few steps leave.
"""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.picture import GREY, INDIGO, WINE, name_time_axis, new_figure, style
from ..core.text_table import time_to
from ..explain.types import Stragglers
from .prediction import LEVEL, TracePrediction
from .prediction_report import TracePredictionReport, WhatIfReport

MOST_NUMBERED = 96  # workers; more would be a grey mass of digits
MOST_NAMED = 6  # worst workers


def plot_workers(found: Stragglers, rank: NDArray, title: str) -> Figure:
    """Slowdown that every worker alone causes, by pipeline stage and data-parallel rank; a box marks the worst.

    Args:
        found: who slowed the job down.
        rank: [replica, stage] global rank of every worker.
        title: of the figure.
    """
    values = found.by_worker.T  # stages are rows
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
        for cell in found.worst:
            _box(ax, *cell, width=1.8 if numbered else 0.6)
        bar = figure.colorbar(image, ax=ax, label="slowdown", fraction=0.08, pad=0.02)
        bar.ax.ticklabel_format(useOffset=False)
        worst = ", ".join(str(rank[cell]) for cell in found.worst[:MOST_NAMED])
        more = ", ..." if len(found.worst) > MOST_NAMED else ""
        ranks = "rank" if len(found.worst) == 1 else "ranks"
        ax.set_title(f"{title}: S = {found.slowdown:.3f}; worst {ranks} {worst}{more}")
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
    """Heat map of the workers."""
    parts = report.parts
    return plot_workers(parts.stragglers, parts.trace.rank, parts.trace.job.name)


LEVELS = np.linspace(0.005, 0.995, 199)
MARKS = {0.5: "o", 0.95: "s", 0.99: "^"}


def plot_trace_prediction(
    prediction: TracePrediction,
    recorded_s: Floats,
    title: str,
    held_out: tuple[TracePrediction, Floats] | None = None,
    other_job: str = "",
) -> Figure:
    """The prediction from all recorded steps; beside it, if given, a prediction from some steps and the steps held out.

    The band on the left is that of the long-run distribution, on the right that of so many steps as were held out, which scatter.

    Args:
        prediction: from all recorded steps.
        recorded_s: [step] their times, seconds.
        title: of the figure.
        held_out: a prediction and the recorded steps that it did not see.
        other_job: what tells the predicted job from the recorded one, "16 replicas"; recorded steps are not drawn beside it.
    """
    with style():
        figure = new_figure((12.0 if held_out else 7.4, 4.8), title)
        n_panel = 2 if held_out else 1
        first = figure.add_subplot(1, n_panel, 1)
        _panel(first, prediction, recorded_s[:0] if other_job else recorded_s, f"{_steps(recorded_s)} recorded", 0)
        first.set_title(f"Predicted job: {other_job}" if other_job else "All recorded steps fitted")
        if held_out:
            second = figure.add_subplot(1, n_panel, 2, sharex=None if other_job else first)
            _panel(second, held_out[0], held_out[1], f"{_steps(held_out[1])} held out", len(held_out[1]))
            second.set_title(f"Check{' on the recorded job' if other_job else ''}: steps that were not fitted")
        for ax in figure.axes:
            name_time_axis(ax.xaxis, "step time")
    return figure


def _panel(ax: Axes, prediction: TracePrediction, measured_s: Floats, label: str, n_band: int) -> None:
    """One prediction, its band for `n_band` steps (0 for the long run), and the measured steps, if any."""
    tail = (1.0 - LEVEL) / 2.0
    by_refit = np.quantile(prediction.step_s, LEVELS, axis=1)  # [level, refit]
    by_sample = np.quantile(_samples(prediction.step_s, n_band), LEVELS, axis=1) if n_band else by_refit
    low, high = np.quantile(by_sample, [tail, 1.0 - tail], axis=1)
    band = f"{LEVEL:.0%} of samples of {_steps(measured_s)}" if n_band else f"{LEVEL:.0%} interval, long run"
    ax.fill_betweenx(LEVELS, low, high, color=INDIGO, alpha=0.18, linewidth=0, label=band)
    ax.plot(np.median(by_refit, axis=1), LEVELS, color=INDIGO, label="predicted")
    for p, marker in MARKS.items():
        value = prediction.quantile(p)
        written = f"p{100 * p:g}  {time_to(value, value / 1e3)}"
        ax.plot(value, p, marker, color=INDIGO, markeredgecolor="white", zorder=4, label=written)
    if len(measured_s):
        _measured(ax, measured_s, label)
    ax.axhline(0.95, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_ylim(0.0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("steps that take at most this long")
    ax.grid(True)
    ax.legend(loc="lower right", handlelength=1.4)


def _measured(ax: Axes, measured_s: Floats, label: str) -> None:
    ordered = np.sort(measured_s)
    share = np.arange(len(ordered) + 1) / len(ordered)
    ax.step([ordered[0], *ordered], share, where="post", color=WINE, linewidth=1.4, label=label)
    ax.plot(ordered, share[1:], "|", color=WINE, markersize=5)


def _samples(step_s: Floats, n: int) -> Floats:
    """[sample, n] the draws of every refit cut into samples of `n` steps, or as many as there are."""
    n = min(n, step_s.shape[1])
    return step_s[:, : step_s.shape[1] // n * n].reshape(-1, n)


def _steps(step_s: Floats) -> str:
    return "1 step" if len(step_s) == 1 else f"{len(step_s):,} steps"


def draw_trace_prediction(report: TracePredictionReport) -> Figure:
    """Recorded and predicted steps, and the check."""
    parts, title = report.parts, f"{report.info.title}: unrecorded steps"
    return plot_trace_prediction(parts.prediction, parts.recorded_s, title, parts.held_out, report.asked.described())
