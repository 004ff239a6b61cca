"""A fit of variability as a picture: shares of variance, and measured values against what the model replicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ..report.types.fit import KeptFitReport
from .bandwidth import plot_bandwidths
from .figure import new_axes
from .style import INDIGO, TEAL, WINE, style

SMALLEST_SHARE = 0.0005  # smaller ones would be labelled 0.0 %
N_BAND = 200  # replicated data sets behind the band


def plot_fit(summary: Mapping[str, Any], checked: Any | None) -> Figure:
    """Left the shares of variance per level, right the distribution of the measured values and of replicated ones.

    Args:
        summary: what `Fit.summary` returns.
        checked: what `Fit.check` returns; None leaves the right side out.
    """
    shares = summary["variance_shares"]
    with style():
        panels = bool(shares) + (checked is not None)
        figure = Figure(figsize=(5.2 * max(panels, 1), 4.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = list(np.atleast_1d(figure.subplots(1, max(panels, 1))))
        if shares:
            plot_shares(_visible(shares), of=summary["variance_of"], ax=axes.pop(0))
        if checked is not None:
            plot_replicated(checked, ax=axes.pop(0))
        for empty in axes:
            empty.axis("off")
            empty.text(0.5, 0.5, "These data tell no shares of variance.", ha="center")
        verdict = "good" if summary["verdict"]["ok"] else "failed"
        figure.suptitle(f"{summary['model']}: {verdict} fit", fontsize=11)
    return figure


def _visible(shares: Mapping[str, float]) -> dict[str, float]:
    return {name: share for name, share in shares.items() if share >= SMALLEST_SHARE}


def plot_shares(shares: Mapping[str, float], *, of: str = "log time", ax: Axes | None = None) -> Axes:
    """Bars of the share of variance of each level."""
    ax = new_axes() if ax is None else ax
    names = list(shares)[::-1]
    ax.barh(names, [shares[name] for name in names], color=TEAL)
    for row, name in enumerate(names):
        ax.text(shares[name] + 0.01, row, f"{shares[name]:.1%}", va="center")
    ax.set_xlim(0.0, 1.15)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_xlabel(f"share of the variance of {of}")
    return ax


def plot_replicated(checked: Any, *, ax: Axes | None = None) -> Axes:
    """Empirical distribution of the measured values (points) in the band of replicated ones (5 to 95 %)."""
    ax = new_axes() if ax is None else ax
    measured = np.sort(checked.measured)
    level = (np.arange(len(measured)) + 0.5) / len(measured)
    replicated = np.sort(checked.predicted[:N_BAND], axis=1)
    low, middle, high = np.quantile(replicated, [0.05, 0.5, 0.95], axis=0)
    ax.fill_betweenx(level, low, high, color=INDIGO, alpha=0.25, linewidth=0, label="replicated, 90 %")
    ax.plot(middle, level, color=INDIGO)
    ax.plot(measured, level, ".", color=WINE, markersize=4, label="measured")
    ax.set_xlabel(checked.what)
    ax.set_ylabel("share of values below")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylim(0.0, 1.0)
    ax.legend(loc="lower right")
    return ax


def draw(report: KeptFitReport) -> Figure:
    """Bandwidth by size of collectives; else shares of variance, and fitted rows against replicated ones."""
    curves = report.parts.fit.curves()
    return (
        plot_bandwidths(curves, report.parts.summary) if curves else plot_fit(report.parts.summary, report.parts.checks)
    )
