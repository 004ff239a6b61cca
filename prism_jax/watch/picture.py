"""Step times of a log with the usual level and the slow phases."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.picture import GREY, INDIGO, WINE, name_time_axis, new_axes, style
from ..core.units import format_s
from .phases import Watched
from .report import WatchReport

HIGHEST = 1.15  # times the highest level: longer steps are drawn at the edge


def plot_slow_phases(steps: NDArray, step_s: Floats, watched: Watched) -> Figure:
    """Step times as points, slow phases as bands, their level as lines.

    Args:
        steps: [entry] step numbers.
        step_s: [entry] seconds per step.
        watched: what was found in them.
    """
    with style():
        ax = new_axes(8.0, 4.2)
        top = HIGHEST * max([watched.normal_s, *(phase.slow_s for phase in watched.phases)])
        low, above = min(float(step_s.min()), watched.normal_s) * 0.98, step_s > top
        ax.plot(steps[~above], step_s[~above], ".", color=GREY, markersize=3, label="recorded steps")
        if above.any():
            edge = np.full(above.sum(), top - 0.015 * (top - low))
            ax.plot(
                steps[above],
                edge,
                "^",
                color=GREY,
                markersize=5,
                label=f"longer ones, up to {format_s(step_s.max(), 3)}",
            )
        ax.axhline(watched.normal_s, color=INDIGO, linewidth=1, label="usual level")
        for number, phase in enumerate(watched.phases):
            first, last = phase.onset_step, steps[-1] if phase.end_step is None else phase.end_step
            ax.axvspan(first, last, color=WINE, alpha=0.12, linewidth=0)
            ax.plot(
                [first, last], [phase.slow_s] * 2, color=WINE, linewidth=1.5, label=None if number else "slow phase"
            )
            ax.annotate(f"+{phase.size:.1%}", (first, low), xytext=(3, 4), textcoords="offset points", color=WINE)
        ax.set_xlabel("step")
        ax.set_ylim(low, top)
        name_time_axis(ax.yaxis, "step time")
        ax.legend(loc="upper left")
        figure = ax.figure
    assert isinstance(figure, Figure)
    return figure


def draw_slow_phases(report: WatchReport) -> Figure:
    """Step times, level and slow phases."""
    parts = report.parts
    return plot_slow_phases(parts.recording.steps, parts.recording.step_s, parts.watched)
