"""Pictures of a step time (seconds): its distribution with errors and guarantee, and its interval by the cost model."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from ..core.picture import INDIGO, WINE, name_time_axis, new_axes
from ..core.readable import time_with_error
from ..core.units import format_s
from .distribution import StepCurve, StepTimeDistribution, step_curve

MARKS = {0.5: "o", 0.95: "s", 0.99: "^"}
LEGEND_WIDTH, LEGEND_HEIGHT = 0.58, 0.38  # of the axes, at most
BAND_ERRORS = 2.0  # standard errors on either side


def plot_step_time(distribution: StepTimeDistribution | StepCurve, *, ax: Axes | None = None) -> Axes:
    """Draws the share of steps that take at most a given time.

    The band is two standard errors of every quantile, from independent randomisations; the dashed line is the step without
    variability; the upright stroke is the upper confidence bound of the p95. An arrow marks a tail that goes on to the right.

    Args:
        distribution: what `predict` returns, or its curve.
        ax: where to draw; a new figure if not given.
    """
    ax = new_axes() if ax is None else ax
    curve = distribution if isinstance(distribution, StepCurve) else step_curve(distribution)
    if curve.is_constant:
        return _plot_constant(curve.at(0.5), ax)
    level, time_s, error_s = (np.array(column) for column in (curve.level, curve.time_s, curve.error_s))
    band = BAND_ERRORS * error_s
    ax.fill_betweenx(
        level, time_s - band, time_s + band, color=INDIGO, alpha=0.22, linewidth=0, label="± 2 standard errors"
    )
    ax.plot(time_s, level, color=INDIGO)
    without = f"without variability {format_s(curve.deterministic_s)}"
    ax.axvline(curve.deterministic_s, color="#444444", linestyle="--", linewidth=1.2, label=without)
    for p, marker in MARKS.items():
        label = f"p{100 * p:g}  {time_with_error(curve.at(p), curve.error_at(p))}"
        ax.plot(curve.at(p), p, marker=marker, color=INDIGO, markeredgecolor="white", ls="none", label=label, zorder=4)
    if curve.bound is not None:
        bound = curve.bound
        label = f"95% within {format_s(bound.bound_s, 5)} ({bound.confidence:.0%} confidence)"
        ax.plot(bound.bound_s, bound.p, "|", color=WINE, markersize=17, markeredgewidth=1.6, label=label, zorder=5)
    low_s, high_s = _limits(curve)
    _frame(ax, low_s, high_s)
    if time_s[-1] > high_s:
        longest = f"to {format_s(float(time_s[-1]), 3)} (p{100 * level[-1]:.4g})"
        ax.annotate(
            longest, (1.0, 0.86), (-54, 0), xycoords="axes fraction", textcoords="offset points", ha="right",
            va="center", fontsize="small", arrowprops={"arrowstyle": "->", "color": INDIGO},
        )  # fmt: skip
    ax.legend(loc="lower right", handlelength=1.4)
    return ax


def _plot_constant(time_s: float, ax: Axes) -> Axes:
    """A step that always takes the same time."""
    margin = 0.02 * time_s
    label = f"every step takes {format_s(time_s, 5)}"
    ax.plot([time_s - margin, time_s, time_s, time_s + margin], [0, 0, 1, 1], color=INDIGO, label=label)
    _frame(ax, time_s - margin, time_s + margin)
    ax.legend(loc="lower right")
    return ax


def _limits(curve: StepCurve) -> tuple[float, float]:
    """Step times between which the picture is drawn: the tail beyond p99 may not squeeze the rest, the legend needs its room."""
    low = min(curve.time_s[0], curve.deterministic_s)
    past_p99 = curve.at(0.99) + 0.3 * (curve.at(0.99) - low)
    right_of_legend = low + (curve.at(LEGEND_HEIGHT) - low) / (1.0 - LEGEND_WIDTH)
    return low, max(min(past_p99, curve.time_s[-1]), right_of_legend)


def _frame(ax: Axes, low_s: float, high_s: float) -> None:
    """Limits, grid and names of the axes."""
    margin = 0.03 * (high_s - low_s)
    ax.set_xlim(low_s - margin, high_s + margin)
    ax.set_ylim(0.0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(True)
    name_time_axis(ax.xaxis, "step time")
    ax.set_ylabel("steps that take at most this long")


OVERHANG = 0.35  # of the interval, drawn on either side: room for words


def plot_model_interval(
    distribution: StepTimeDistribution | StepCurve, interval_s: tuple[float, float], ax: Axes
) -> Axes:
    """Draws one bar from end to end of the interval, and in it the modelled steps from p5 to p99 and their median.

    Args:
        distribution: what `predict` returns, or its curve.
        interval_s: 90% interval of the median step that would be measured, seconds.
        ax: where to draw.
    """
    low, high = interval_s
    curve = distribution if isinstance(distribution, StepCurve) else step_curve(distribution)
    p5, median, p99 = (curve.at(p) for p in (0.05, 0.5, 0.99))
    ax.barh(0.0, high - low, left=low, height=0.5, color=INDIGO, alpha=0.18)
    ax.barh(0.0, p99 - p5, left=p5, height=0.5, color=INDIGO)
    ax.plot(median, 0.0, "o", color=INDIGO, markeredgecolor="white", zorder=4)
    ax.text(low, 0.0, f"{format_s(low, 3)} ", ha="right", va="center", fontsize="small")
    ax.text(high, 0.0, f" {format_s(high, 3)}", ha="left", va="center", fontsize="small")
    margin = OVERHANG * (high - low)
    ax.set_xlim(low - margin, high + margin)
    ax.set_ylim(-0.6, 0.6)
    ax.set_yticks([])
    name_time_axis(ax.xaxis, "90% interval of the median step that would be measured; dark: modelled steps, p5 to p99")
    return ax
