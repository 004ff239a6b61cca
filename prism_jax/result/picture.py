"""Pictures of a step time (seconds): its distribution with errors and guarantee, and its interval by the cost model."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from ..core.errors import DataError
from ..core.picture import INDIGO, WINE, name_time_axis, new_axes
from ..core.text_table import time_with_error
from ..core.units import format_s
from .distribution import StepTimeDistribution

MARKS = {0.5: "o", 0.95: "s", 0.99: "^"}
LEGEND_WIDTH, LEGEND_HEIGHT = 0.58, 0.38  # of the axes, at most
ROUNDING = 1e-6  # relative; a smaller range is float32 noise
BAND_ERRORS = 2.0  # standard errors on either side
LEVELS = np.concatenate([np.linspace(0.001, 0.99, 400), np.linspace(0.99, 0.9995, 60)[1:]])


def plot_step_time(distribution: StepTimeDistribution, *, ax: Axes | None = None) -> Axes:
    """Draws the share of steps that take at most a given time.

    The band is two standard errors of every quantile, from independent randomisations; the dashed line is the step without
    variability; the upright stroke is the upper confidence bound of the p95. The last half percent of steps may lie outside.

    Args:
        distribution: what `predict` returns.
        ax: where to draw; a new figure if not given.
    """
    ax = new_axes() if ax is None else ax
    if np.ptp(distribution.samples_s) <= ROUNDING * distribution.mean_s:
        return _plot_constant(distribution, ax)
    time_s, error_s = _curve(distribution)
    band = BAND_ERRORS * error_s
    ax.fill_betweenx(
        LEVELS, time_s - band, time_s + band, color=INDIGO, alpha=0.22, linewidth=0, label="± 2 standard errors"
    )
    ax.plot(time_s, LEVELS, color=INDIGO)
    ax.axvline(
        distribution.deterministic_s,
        color="#444444",
        linestyle="--",
        linewidth=1.2,
        label=f"without variability {format_s(distribution.deterministic_s)}",
    )
    for p, marker in MARKS.items():
        _mark(ax, distribution, p, marker)
    _mark_bound(ax, distribution)
    _frame(ax, *_limits(distribution))
    ax.legend(loc="lower right", handlelength=1.4)
    return ax


def _mark_bound(ax: Axes, distribution: StepTimeDistribution) -> None:
    """The guarantee, where there is one."""
    try:
        bound = distribution.guarantee()
    except DataError:
        return
    label = f"95% within {format_s(bound.bound_s, 5)} ({bound.confidence:.0%} confidence)"
    ax.plot(bound.bound_s, bound.p, "|", color=WINE, markersize=17, markeredgewidth=1.6, label=label, zorder=5)


def _plot_constant(distribution: StepTimeDistribution, ax: Axes) -> Axes:
    """A step that always takes the same time."""
    time_s = float(distribution.samples_s[0])
    margin = 0.02 * time_s
    label = f"every step takes {format_s(time_s, 5)}"
    ax.plot([time_s - margin, time_s, time_s, time_s + margin], [0, 0, 1, 1], color=INDIGO, label=label)
    _frame(ax, time_s - margin, time_s + margin)
    ax.legend(loc="lower right")
    return ax


def _curve(distribution: StepTimeDistribution) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles at LEVELS and their standard errors."""
    values, errors = zip(*[(distribution.quantile(p), distribution.mc_error(p)) for p in LEVELS], strict=True)
    return np.array(values), np.array(errors)


def _mark(ax: Axes, distribution: StepTimeDistribution, p: float, marker: str) -> None:
    """A quantile as a point on the curve, with its value and error in the legend."""
    value, error = distribution.quantile(p), distribution.mc_error(p)
    label = f"p{100 * p:g}  {time_with_error(value, error)}"
    ax.plot(value, p, marker=marker, color=INDIGO, markeredgecolor="white", linestyle="none", label=label, zorder=4)


def _limits(distribution: StepTimeDistribution) -> tuple[float, float]:
    """Step times between which the picture is drawn: the tail beyond p99 may not squeeze the rest, the legend needs its room."""
    low = min(distribution.quantile(LEVELS[0]), distribution.deterministic_s)
    past_p99 = distribution.quantile(0.99) + 0.3 * (distribution.quantile(0.99) - low)
    beside_legend = low + (distribution.quantile(LEGEND_HEIGHT) - low) / (1.0 - LEGEND_WIDTH)
    return low, max(min(past_p99, distribution.quantile(0.9995)), beside_legend)


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


def plot_model_interval(distribution: StepTimeDistribution, interval_s: tuple[float, float], ax: Axes) -> Axes:
    """Draws one bar from end to end of the interval, and in it the modelled steps from p5 to p99 and their median.

    Args:
        distribution: what `predict` returns.
        interval_s: 90 % interval of the median step that would be measured, seconds.
        ax: where to draw.
    """
    low, high = interval_s
    p5, median, p99 = (distribution.quantile(p) for p in (0.05, 0.5, 0.99))
    ax.barh(0.0, high - low, left=low, height=0.5, color=INDIGO, alpha=0.18)
    ax.barh(0.0, p99 - p5, left=p5, height=0.5, color=INDIGO)
    ax.plot(median, 0.0, "o", color=INDIGO, markeredgecolor="white", zorder=4)
    ax.text(low, 0.0, f"{format_s(low, 3)} ", ha="right", va="center", fontsize="small")
    ax.text(high, 0.0, f" {format_s(high, 3)}", ha="left", va="center", fontsize="small")
    margin = OVERHANG * (high - low)
    ax.set_xlim(low - margin, high + margin)
    ax.set_ylim(-0.6, 0.6)
    ax.set_yticks([])
    name_time_axis(ax.xaxis, "90 % interval of the median step that would be measured; dark: modelled steps, p5 to p99")
    return ax
