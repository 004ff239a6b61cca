"""Step times of a log with the usual level and the slow phases."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ..core.errors import DataError
from ..core.picture import INDIGO, WINE, name_time_axis, new_axes, style
from ..core.units import format_s
from .report import WatchReport

POINT = "#777777"
HIGHEST = 1.15  # times the highest level, or what all but 5% of steps take: longer steps are drawn at the edge


def draw_slow_phases(report: WatchReport) -> Figure:
    """Step times as points, slow phases as bands, their level as lines.

    Raises:
        DataError: the report is of a version that kept no steps.
    """
    points = report.points
    if points is None:
        raise DataError("this answer was saved by an older version, which kept no steps. Watch again to draw it.")
    steps, step_s = np.array(points.step), np.array(points.step_s)
    with style():
        ax = new_axes(8.0, 4.2)
        top = HIGHEST * max(
            report.normal_s, float(np.quantile(step_s, 0.95)), *(phase.slow_s for phase in report.phases)
        )
        low, above = min(float(step_s.min()), report.normal_s) * 0.98, step_s > top
        ax.plot(steps[~above], step_s[~above], ".", color=POINT, markersize=4, label="recorded steps")
        if above.any():
            edge = np.full(above.sum(), top - 0.015 * (top - low))
            longest = f"longer ones, up to {format_s(step_s.max(), 3)}"
            ax.plot(steps[above], edge, "^", color=POINT, markersize=5, label=longest)
        ax.axhline(report.normal_s, color=INDIGO, linewidth=1, label="usual level")
        for number, phase in enumerate(report.phases):
            first, last = phase.onset_step, steps[-1] if phase.end_step is None else phase.end_step
            label = None if number else "slow phase"
            ax.axvspan(first, last, color=WINE, alpha=0.12, linewidth=0)
            ax.plot([first, last], [phase.slow_s] * 2, color=WINE, linewidth=1.5, label=label)
            ax.annotate(f"+{phase.size:.1%}", (first, low), xytext=(3, 4), textcoords="offset points", color=WINE)
        ax.set_title(f"{report.info.title}: {report.verdict[0]}", loc="left")
        ax.set_xlabel("step")
        ax.set_ylim(low, top)
        name_time_axis(ax.yaxis, "step time")
        ax.legend(loc="upper left")
        figure = ax.figure
    assert isinstance(figure, Figure)
    return figure
