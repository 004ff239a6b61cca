"""The picture of run.py: per job, what sources explain of the variance, of slow steps, and the seconds of p95 by owner."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from prism_jax.core.picture import INDIGO, SAND, TEAL, figure_bytes, style
from prism_jax.explain.types import Attribution, ShapleyFalls, SobolIndices, words

MOST_OWNERS = 8


def draw(every: Mapping[str, Attribution]) -> bytes:
    """PNG of all jobs."""
    with style():
        figure = Figure(figsize=(14.0, 3.0 * len(every)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(every), 3, squeeze=False)
        for row, (name, found) in zip(axes, every.items(), strict=True):
            _indices(row[0], found.step_time, f"{name}: variance of the step time")
            _indices(row[1], found.slow_step, "of whether a step is beyond p95")
            _owners(row[2], found.p95)
        axes[0][0].legend(fontsize="small", loc="lower right")
        return figure_bytes(figure, "png")


def _indices(ax: Axes, own: SobolIndices, title: str) -> None:
    names = [*own.first][::-1]
    first = np.array([max(own.first[name], 0.0) for name in names])
    total, error = (np.array([part[name] for name in names]) for part in (own.total, own.total_error))
    ax.barh([words(name) for name in names], first, color=INDIGO, label="alone")
    rest = np.maximum(total - first, 0.0)
    ax.barh(names_at := range(len(names)), rest, left=first, color=SAND, label="only with others")
    ax.errorbar(first + rest, names_at, xerr=1.96 * error, fmt="none", ecolor="black", lw=0.8)
    ax.set_title(f"{title}\ntogether {own.remainder:.1%} ± {1.96 * own.remainder_error:.1%}", fontsize="medium")
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))


def _owners(ax: Axes, own: ShapleyFalls) -> None:
    names = [*own.value_s][:MOST_OWNERS][::-1]
    at = np.arange(len(names))
    ax.barh(at, [own.value_s[name] / own.total_s for name in names], color=TEAL, label="Shapley value")
    ax.plot([own.last_s[name] / own.total_s for name in names], at, "k|", ms=12, label="if removed")
    ax.plot([own.alone_s[name] / own.total_s for name in names], at, "kx", ms=5, label="if alone")
    ax.set_yticks(at, [words(name) for name in names])
    ax.set_title(f"p95, {own.total_s:.3g} s above no variability", fontsize="medium")
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.legend(fontsize="small", loc="lower right")
