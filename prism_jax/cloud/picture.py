"""Picture of a choice of cloud: time and money of what was simulated, and the names of the front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..core.errors import DataError
from ..core.picture import INDIGO, ROSE, TEAL, hours_or_days, new_axes, new_figure, style
from ..core.readable import amount, duration
from .report import CloudReport, RentFacts, SimulatedRents, instances_words

MOST_NAMES = 12
FEW = 2.5  # decades of an axis below which 2 and 5 have ticks, too


def draw_cloud(report: CloudReport) -> Figure:
    """Time and money of what was simulated, the front by its numbers, and what these are.

    Raises:
        DataError: the report is of a version that kept nothing of what was simulated.
    """
    if report.simulated is None:
        raise DataError("this choice was saved by an older version, which kept no candidates. Choose again to draw it.")
    with style():
        figure = new_figure((12.0, 5.2), f"{report.job}: {report.n_steps:,} steps")
        left, right = figure.subplots(1, 2, width_ratios=(1.3, 1.0))
        plot_front(report, report.simulated, ax=left).set_title("What was simulated (means)")
        _list_front(report.front, right)
    return figure


def plot_front(report: CloudReport, simulated: SimulatedRents, *, ax: Axes | None = None) -> Axes:
    """Draws what was simulated as points, the front as a numbered line, the best as a star, deadline and budget."""
    ax = new_axes() if ax is None else ax
    time_s, cost, has_spot = (np.array(of) for of in (simulated.time_s, simulated.cost_usd, simulated.has_spot))
    unit, unit_s = hours_or_days(float(np.median(time_s)) if len(time_s) else 0.0)
    for needs, colour, label in ((True, INDIGO, "with spot"), (False, TEAL, "on demand")):
        own = has_spot == needs
        if own.any():
            ax.plot(time_s[own] / unit_s, cost[own], "o", color=colour, ms=4.0, alpha=0.6, label=label)
    front = [(one.time_mean_s.value / unit_s, one.cost_mean_usd.value) for one in report.front]
    if front:
        ax.plot(*np.array(front).T, color="#444444", lw=1.0, label="Pareto front")
    for number, at in enumerate(front[:MOST_NAMES], 1):
        ax.annotate(str(number), at, xytext=(5, 5), textcoords="offset points", fontsize="small")
    if (best := report.best) is not None:
        label = "best, on fresh draws"
        ax.plot(best.time_mean_s.value / unit_s, best.cost_mean_usd.value, "*", color=ROSE, ms=14.0, label=label)
    if report.deadline_s is not None:
        ax.axvline(report.deadline_s / unit_s, color=ROSE, ls="--", label="deadline")
    if report.budget_usd is not None:
        ax.axhline(report.budget_usd, color=ROSE, ls=":", label="budget")
    for axis, name in ((ax.xaxis, f"expected {unit}"), (ax.yaxis, "expected cost, USD")):
        _log_axis(axis, name)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, fontsize="small")
    return ax


def _log_axis(axis: Axis, name: str) -> None:
    """Names a logarithmic axis whose ticks are plain numbers."""
    (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)("log")
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if np.log10(high / low) < FEW else (1.0,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: amount(value)))
    axis.set_label_text(name)


def _list_front(front: Sequence[RentFacts], ax: Axes) -> None:
    """The names of the numbers."""
    ax.axis("off")
    ax.set_title("Pareto front" if front else "")
    for number, one in enumerate(front[:MOST_NAMES], 1):
        figures = (
            f"{one.policy.replace('_', ' ')}, {duration(one.time_mean_s.value)}, {amount(one.cost_mean_usd.value)} USD"
        )
        text = f"{number}   {instances_words(one)}\n      {figures}"
        ax.text(0.0, 1.0 - (number - 0.5) / MOST_NAMES, text, va="center", fontsize="small")
