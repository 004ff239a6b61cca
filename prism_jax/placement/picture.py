"""A placement as a picture: the nodes by stage and replica, before and after, and the step times of every method."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..core.picture import (
    CYAN,
    GREY,
    INDIGO,
    OLIVE,
    PURPLE,
    ROSE,
    SAND,
    TEAL,
    name_time_axis,
    new_axes,
    new_figure,
    style,
)
from ..core.text_table import time_with_error
from ..core.units import format_s
from .report import PlacementReport
from .result import AS_GIVEN, OPTIMISED, PlacementResult

LINES = {
    AS_GIVEN: ("as given", ROSE),
    "random_best_of_1000": ("best of 1,000 random", SAND),
    "sorted": ("sorted", OLIVE),
    "annealed": ("annealed", TEAL),
    "relaxed": ("relaxed", CYAN),
    "annealed_on": ("annealed on", "#777777"),
    "brute_force": ("every one tried", GREY),
    "even_splits": ("even splits", PURPLE),
    OPTIMISED: ("chosen", INDIGO),
}
LEVELS = np.linspace(0.005, 0.995, 199)


def plot_placement(result: PlacementResult, title: str) -> Figure:
    """Two maps of the nodes, as given and chosen, coloured by their slowest GPU, and the distributions of the step time."""
    with style():
        figure = new_figure((13.0, 5.2))
        grid = figure.add_gridspec(1, 3, width_ratios=(1.0, 1.0, 1.7))
        figure.suptitle(f"{title}: {_headline(result)}", x=0.01, ha="left")
        before, after = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
        plot_nodes(result, AS_GIVEN, ax=before).set_title("nodes as given")
        plot_nodes(result, OPTIMISED, ax=after).set_title("chosen")
        bar = figure.colorbar(
            after.images[0], ax=[before, after], label="slowdown of the node's slowest GPU", fraction=0.05
        )
        bar.ax.ticklabel_format(useOffset=False)
        plot_methods(result, ax=figure.add_subplot(grid[0, 2])).set_title("Step time")
    return figure


def plot_nodes(result: PlacementResult, method: str, *, ax: Axes | None = None) -> Axes:
    """Draws the slowest GPU of the node in every place; white where no node starts."""
    ax = new_axes() if ax is None else ax
    lane, replica = result.seat.T
    shown = np.full((lane.max() + 1, replica.max() + 1), -np.inf)
    seats = list(result.assignments[method][: len(lane)])
    np.maximum.at(shown, (lane, replica), result.slowness[seats])
    values = np.where(np.isfinite(shown), shown, np.nan)
    low, high = float(result.slowness.min()), float(result.slowness.max())
    ax.imshow(values, cmap="OrRd", vmin=low, vmax=max(high, low + 1e-3), aspect="auto", interpolation="nearest")
    ax.grid(False)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    ax.set_xlabel("replica")
    ax.set_ylabel("stage")
    return ax


def plot_methods(result: PlacementResult, *, ax: Axes | None = None) -> Axes:
    """Draws the share of steps within a given time for every method, with the p95 marked."""
    ax = new_axes() if ax is None else ax
    for method, (words, colour) in LINES.items():
        if method not in result.batches_s:
            continue
        steps = result.batches_s[method].ravel()
        p95, error = result.value(method, "p95")
        label = f"{words}: p95 {time_with_error(p95, error)}"
        wide = method == OPTIMISED
        ax.plot(np.quantile(steps, LEVELS), LEVELS, color=colour, linewidth=2.4 if wide else 1.4, label=label)
        ax.plot(p95, 0.95, "o", color=colour, markeredgecolor="white", zorder=4)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylim(0.0, 1.02)
    name_time_axis(ax.xaxis, "step time")
    ax.set_ylabel("steps that take at most this long")
    ax.legend(loc="lower right", handlelength=1.4, frameon=True, framealpha=0.92, edgecolor="none")
    return ax


def _headline(result: PlacementResult) -> str:
    gain, base = result.gain, result.value(AS_GIVEN)[0]
    unit = result.objective.unit
    low, high = (format_s(one) if unit == "s" else f"{one:.3g} {unit}" for one in (gain.low_s, gain.high_s))
    return f"{result.objective.name} {gain.value_s / base:.1%} lower (90 %: {low} to {high})"


def draw_placement(report: PlacementReport) -> Figure:
    """What every method reaches, and where the slow nodes went."""
    return plot_placement(report.parts, f"{report.job.name}: {len(report.parts.assignment)} nodes")
