"""Heat map of the workers of a recorded job: who slows the others down."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ..._typing import Floats
from ...explain.types import Stragglers
from ...report.types.trace_prediction import WhatIfReport
from ..style import INDIGO, style

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
        figure = Figure(figsize=(float(size[0]), float(size[1])), layout="constrained")
        FigureCanvasAgg(figure)
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


def draw(report: WhatIfReport) -> Figure:
    """Heat map of the workers."""
    parts = report.parts
    return plot_workers(parts.stragglers, parts.trace.rank, parts.trace.job.name)
