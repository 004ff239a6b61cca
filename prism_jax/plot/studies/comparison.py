"""A comparison as a picture: what every job takes, its ratio to the best, and how probable it is that one beats another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...explain.words import percent
from ...report.types.studies.comparison import ComparisonReport
from ...study.comparison import Comparison
from ..figure import new_axes
from ..style import GREY, INDIGO, TEAL, style

DARK = 0.6  # probability from which text stands on a dark cell


def plot_comparison(found: Comparison, names: Sequence[str]) -> Figure:
    """Three panels; `names` of the jobs in their order."""
    with style():
        figure = Figure(figsize=(14.0, 1.8 + 0.55 * len(names)), layout="constrained")
        FigureCanvasAgg(figure)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1.0, 1.0))
        plot_medians(found, names, ax=left).set_title("Median, and where 90 % of measured ones lie")
        plot_ratios(found, ax=middle).set_title(f"By {found.table.objective}")
        plot_probabilities(found, [name.split()[0] for name in names], ax=right).set_title("P(row better than column)")
    return figure


def plot_medians(found: Comparison, names: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Predicted medians with their model intervals, seconds."""
    ax = new_axes() if ax is None else ax
    at = np.arange(len(names))
    figures = [row.figures for row in found.table.rows if row.figures]
    median, low, high = (
        np.array([getattr(own, name) for own in figures]) for name in ("p50_s", "model_low", "model_high")
    )
    ax.hlines(at, median * low, median * high, color=INDIGO, alpha=0.35, lw=6)
    ax.plot(median, at, "o", color=INDIGO)
    ax.set_yticks(at, names)
    ax.set_xlabel("step time (s)")
    return _from_top(ax, len(names))


def plot_ratios(found: Comparison, *, ax: Axes | None = None) -> Axes:
    """Objectives over that of the best job: predicted, and the 90 % interval as they would be measured."""
    ax = new_axes() if ax is None else ax
    at, bounds = np.arange(len(found.ratios)), np.array(found.ratios)
    ax.axvline(1.0, color=GREY, lw=1.0)
    ax.hlines(at, bounds[:, 0], bounds[:, 1], color=TEAL, alpha=0.35, lw=6)
    ax.plot([row.relative for row in found.table.rows], at, "o", color=TEAL)
    ax.set_yticks(at, [""] * len(at))
    ax.set_xlabel("relative to the best, shared errors counted once")
    return _from_top(ax, len(at))


def plot_probabilities(found: Comparison, labels: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Paired probabilities as a table of colours and per cents."""
    ax = new_axes() if ax is None else ax
    probs = np.array(found.prob_less)
    ax.imshow(np.where(np.eye(len(labels)) > 0, np.nan, probs), cmap="Purples", vmin=0.0, vmax=1.0, aspect="auto")
    for row, column in permutations(range(len(labels)), 2):
        prob = probs[row, column]
        ax.text(column, row, percent(prob), ha="center", va="center", color="white" if prob > DARK else "black")
    ax.set_xticks(range(len(labels)), labels)
    ax.set_yticks(range(len(labels)), labels)
    ax.grid(visible=False)
    return ax


def _from_top(ax: Axes, n: int) -> Axes:
    ax.set_ylim(n - 0.5, -0.5)
    return ax


def draw(report: ComparisonReport) -> Figure:
    """Medians with their bands, ratios to the best, and the probabilities."""
    return plot_comparison(report.parts, [f"{own.label}  {own.name}" for own in report.jobs])
