"""A placement as a picture: the nodes by stage and replica, before and after, and the step times that every method reaches."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.arrays import Floats
from ..core.picture import CYAN, INDIGO, ROSE, name_time_axis, new_figure, style
from .report import AS_GIVEN, OPTIMISED, WORDS, PlacementReport, by_place


def draw_placement(report: PlacementReport) -> Figure:
    """Two maps of the nodes, as given and chosen, coloured by their slowest GPU, and p50, p95 and p99 of every method."""
    slowness = np.array(report.node_slowdown)
    span = float(slowness.min()), max(float(slowness.max()), float(slowness.min()) + 1e-3)
    with style():
        card = report.card()
        figure = new_figure((13.0, 5.2), f"{card.title}\n{card.verdict}")
        grid = figure.add_gridspec(1, 3, width_ratios=(1.0, 1.0, 1.7))
        before, after = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
        _draw_nodes(by_place(report, slowness, report.as_given), span, before).set_title("nodes as given")
        _draw_nodes(by_place(report, slowness, report.assignment), span, after).set_title("chosen")
        bar = figure.colorbar(
            after.images[0], ax=[before, after], label="slowdown of the node's slowest GPU", fraction=0.05
        )
        bar.ax.ticklabel_format(useOffset=False)
        _draw_methods(report, figure.add_subplot(grid[0, 2])).set_title("Step time: p50, p95 (dot), p99")
    return figure


def _draw_nodes(values: Floats, span: tuple[float, float], ax: Axes) -> Axes:
    """The slowest GPU of the node in every place; white where there is none."""
    ax.imshow(values, cmap="OrRd", vmin=span[0], vmax=span[1], aspect="auto", interpolation="nearest")
    ax.grid(False)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    ax.set_xlabel("replica")
    ax.set_ylabel("stage")
    return ax


def _draw_methods(report: PlacementReport, ax: Axes) -> Axes:
    """A line from p50 to p99 for every method, the best on top."""
    known = [name for name in WORDS if name in report.p95_s]
    names = sorted(known, key=lambda name: (name == OPTIMISED, -report.p95_s[name]))
    for row, name in enumerate(names):
        colour = INDIGO if name == OPTIMISED else ROSE if name == AS_GIVEN else CYAN
        ax.plot([report.p50_s[name], report.p99_s[name]], [row, row], color=colour, linewidth=2.4)
        ax.errorbar(report.p95_s[name], row, xerr=1.645 * report.p95_error_s[name], fmt="o", color=colour, capsize=3)
    ax.set_yticks(range(len(names)), [WORDS[name] for name in names])
    ax.set_ylim(-0.6, len(names) - 0.4)
    name_time_axis(ax.xaxis, "step time (bars: 90% Monte Carlo error of the p95)")
    ax.grid(False, axis="y")
    return ax
