"""Predicted and recorded step times of a traced job as distribution functions, with the interval that few steps leave."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from .._typing import Floats
from ..trace.prediction import TracePrediction
from ..trace.score import LEVEL
from .style import GREY, INDIGO, WINE, style

LEVELS = np.linspace(0.005, 0.995, 199)
MARKS = {0.5: "o", 0.95: "s", 0.99: "^"}


def plot_trace_prediction(
    prediction: TracePrediction, recorded_s: Floats, title: str, held_out: tuple[TracePrediction, Floats] | None = None
) -> Figure:
    """The prediction from all recorded steps; beside it, if given, a prediction from some steps and the steps held out.

    Args:
        prediction: from all recorded steps.
        recorded_s: [step] their times, seconds.
        title: of the figure.
        held_out: a prediction and the recorded steps that it did not see.
    """
    with style():
        figure = Figure(figsize=(12.0 if held_out else 7.4, 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left")
        n_panel = 2 if held_out else 1
        first = figure.add_subplot(1, n_panel, 1)
        _panel(first, prediction, recorded_s, f"{len(recorded_s)} recorded steps")
        first.set_title("All recorded steps fitted")
        if held_out:
            second = figure.add_subplot(1, n_panel, 2, sharex=first)
            _panel(second, held_out[0], held_out[1], f"{len(held_out[1])} steps held out")
            second.set_title("Check: steps that were not fitted")
    return figure


def _panel(ax: Axes, prediction: TracePrediction, measured_s: Floats, label: str) -> None:
    tail = (1.0 - LEVEL) / 2.0
    by_refit = np.quantile(prediction.step_s, LEVELS, axis=1)  # [level, refit]
    low, high = np.quantile(by_refit, [tail, 1.0 - tail], axis=1)
    ax.fill_betweenx(LEVELS, low, high, color=INDIGO, alpha=0.18, linewidth=0, label=f"{LEVEL:.0%} interval")
    ax.plot(by_refit.mean(axis=1), LEVELS, color=INDIGO, label="predicted")
    for p, marker in MARKS.items():
        value = prediction.quantile(p)
        ax.plot(value, p, marker, color=INDIGO, markeredgecolor="white", zorder=4, label=f"p{100 * p:g}  {value:.4g} s")
    ordered = np.sort(measured_s)
    share = np.arange(1, len(ordered) + 1) / len(ordered)
    ax.step(ordered, share, where="post", color=WINE, linewidth=1.4, label=label)
    ax.plot(ordered, share, "|", color=WINE, markersize=5)
    ax.axhline(0.95, color=GREY, linewidth=0.8, linestyle=":")
    ax.set_ylim(0.0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_xlabel("step time (s)")
    ax.set_ylabel("steps that take at most this long")
    ax.grid(True)
    ax.legend(loc="lower right", handlelength=1.4)
