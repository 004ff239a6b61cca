"""Draws fitted collectives (bus bandwidth by message size, measured and by the law with its band) and fits of variability.

Of variability the shares of variance, and measured values against what the model replicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, PercentFormatter

from ..core.picture import CYAN, GREEN, INDIGO, OLIVE, PURPLE, ROSE, SAND, TEAL, WINE, new_axes, new_figure, style
from ..core.readable import evenly
from ..core.report import to_plain
from .curves import MOST_CURVES, MOST_PANELS
from .parameters import INTERVALS, Parameter, parameters_of
from .report import FitReport, KeptFitReport, ReplicatedValues, share_text, shares_to_show

COLOURS = (INDIGO, ROSE, TEAL, SAND, WINE, CYAN, GREEN, PURPLE, OLIVE)
COLUMNS = 3
WIDEST = 45  # characters below a panel
GB = 1e9


def plot_bandwidths(curves: Sequence[Any], summary: Mapping[str, Any]) -> Figure:
    """One panel per collective, one colour per scale.

    Args:
        curves: what `Fit.curves` returns, at least one.
        summary: what `Fit.summary` returns.
    """
    ops = list(dict.fromkeys(curve.op for curve in curves))
    shown = ops[:MOST_PANELS]
    n_column = min(COLUMNS, len(shown))
    n_row = -(-len(shown) // n_column)
    with style():
        figure = new_figure((1.5 + 4.7 * n_column, 0.6 + 4.0 * n_row))
        axes = list(np.atleast_1d(figure.subplots(n_row, n_column)).ravel())
        for op in shown:
            plot_bandwidth([curve for curve in curves if curve.op == op], ax=axes.pop(0))
        for empty in axes:
            empty.axis("off")
        rest = f", {len(ops) - len(shown)} more not shown" if len(ops) > len(shown) else ""
        figure.suptitle(f"{summary['model']}: {_verdict(summary)}{rest}", fontsize=11)
    return figure


def _verdict(summary: Mapping[str, Any]) -> str:
    """The verdict of the report, without its reasons: "good fit", "failed fit", "bandwidth only"."""
    word = summary["verdict"]["sentence"].partition(":")[0]
    return f"{word} fit" if word in ("good", "failed") else word


def plot_bandwidth(curves: Sequence[Any], *, ax: Axes | None = None) -> Axes:
    """Bus bandwidth of one collective by message size: measured points, and the fitted curves with their 90% bands."""
    ax = new_axes() if ax is None else ax
    shown = evenly(curves, MOST_CURVES)
    places = [_place(curve) for curve in shown]
    for curve, place, tint in zip(shown, places, COLOURS, strict=False):
        low, centre, high = np.asarray(curve.bus) / GB
        name = f"{place}, {curve.fabric}" if places.count(place) > 1 and curve.fabric else place
        ax.fill_between(curve.n_bytes, low, high, color=tint, alpha=0.25, linewidth=0)
        ax.plot(curve.n_bytes, centre, color=tint, label=name)
        ax.plot(curve.measured_bytes, np.asarray(curve.measured_bus) / GB, ".", color=tint, markersize=5)
    ax.set_xscale("log", base=2)
    ax.set_ylim(bottom=0.0)
    ax.xaxis.set_major_locator(LogLocator(base=2.0**5, numticks=12))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n_bytes, _: size_name(n_bytes)))
    ax.xaxis.set_minor_locator(LogLocator(base=2.0, numticks=99))
    ax.xaxis.set_minor_formatter(FuncFormatter(lambda n_bytes, _: ""))
    ax.set_xlabel("message size")
    ax.set_ylabel("bus bandwidth (GB/s)")
    left_out = f" ({len(curves) - len(shown)} more scales not shown)" if len(curves) > len(shown) else ""
    ax.set_title(f"{curves[0].op}{left_out}", fontsize=10)
    ax.legend(loc="best", title="points measured, band 90%")
    return ax


def size_name(n_bytes: float) -> str:
    """8 B, 32 KiB, 1 GiB."""
    for unit, name in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:g} {name}"
    return f"{n_bytes:g} B"


def _place(curve: Any) -> str:
    nodes = f" in {curve.n_nodes} nodes" if curve.n_nodes > 1 else ""
    return f"{curve.n_gpus} GPUs{nodes}"


def plot_fit(summary: Mapping[str, Any], replicated: ReplicatedValues | None) -> Figure:
    """Shares of variance, and next to them replicated values or, where there are none, parameters with their intervals.

    Args:
        summary: what `Fit.summary` returns.
    """
    shares = summary["variance_shares"]
    found = [one for one in parameters_of(summary.get("about", {})) if one.low > 0.0] if replicated is None else []
    with style():
        panels = bool(shares) + (replicated is not None) + bool(found)
        height = max(4.2, 1.6 + 0.3 * min(len(found), MOST_PARAMETERS))
        figure = new_figure((5.2 * max(panels, 1) + 2.4 * bool(found), height))
        axes = list(np.atleast_1d(figure.subplots(1, max(panels, 1))))
        if shares:
            known = summary.get("about", {}).get(INTERVALS)
            shown = dict(sorted(shares_to_show(shares)[0].items(), key=lambda item: -item[1]))
            plot_shares(shown, of=summary["variance_of"], intervals=known, ax=axes.pop(0))
        if replicated is not None:
            plot_replicated(replicated, ax=axes.pop(0))
        if found:
            _plot_parameters(found, axes.pop(0))
        for empty in axes:
            empty.axis("off")
            empty.text(0.5, 0.5, "Shares of variance are not known from these data.", ha="center")
        figure.suptitle(f"{summary['model']}: {_verdict(summary)}", fontsize=11)
    return figure


def plot_shares(
    shares: Mapping[str, float],
    *,
    of: str = "log time",
    intervals: Mapping[str, Mapping[str, float]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Bars of the share of variance of each level, with a line over the 90% interval of those that are known as a range."""
    ax = new_axes() if ax is None else ax
    names = list(shares)[::-1]
    ax.barh(names, [shares[name] for name in names], color=TEAL)
    for row, name in enumerate(names):
        known = (intervals or {}).get(name)
        text, end = share_text(shares[name], known), shares[name]
        if known is not None and " to " in text:
            end = known["p95"]
            ax.plot([known["p5"], end], [row, row], color=INDIGO)
        ax.text(end + 0.01, row, text, va="center")
    ax.set_xlim(0.0, 1.15)
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_xlabel(fill(f"share of the variance of {of}", WIDEST))
    return ax


def plot_replicated(found: ReplicatedValues, *, ax: Axes | None = None) -> Axes:
    """Empirical distribution of the measured values (points) in the band of replicated ones (5 to 95%)."""
    ax = new_axes() if ax is None else ax
    ax.fill_betweenx(found.level, found.low, found.high, color=INDIGO, alpha=0.25, linewidth=0, label="replicated, 90%")
    ax.plot(found.middle, found.level, color=INDIGO)
    ax.plot(found.measured, found.level, ".", color=WINE, markersize=4, label="measured")
    ax.set_xlabel(found.what)
    ax.set_ylabel("share of values below")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylim(0.0, 1.0)
    ax.legend(loc="lower right")
    return ax


MOST_PARAMETERS = 14
LONGEST = 52  # characters of a name, whose end tells it from the others
TICKS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)


def _plot_parameters(found: Sequence[Parameter], ax: Axes) -> Axes:
    """Intervals of parameters over their medians: which are known well, and which hardly."""
    shown = found[:MOST_PARAMETERS][::-1]
    rows, ends = np.arange(len(shown)), np.array([(p.low / p.middle, p.high / p.middle) for p in shown])
    ax.hlines(rows, ends[:, 0], ends[:, 1], color=SAND, linewidth=4)
    ax.plot(np.ones(len(shown)), rows, "o", color=INDIGO, markersize=4)
    for row, one in zip(rows, shown, strict=True):
        ax.annotate(one.text, (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize="small")
    ax.set_xscale("log")
    low, high = 0.9 * min(ends.min(), 0.5), 1.1 * max(ends.max(), 2.0)
    ax.set_xlim(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    ax.set_xticks(ticks, [f"x {tick:g}" for tick in ticks])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_yticks(
        rows, [p.name if len(p.name) <= LONGEST else f"…{p.name[-LONGEST:]}" for p in shown], fontsize="small"
    )
    ax.set_ylim(-0.6, len(shown) - 0.4)
    ax.set_xlabel("90% interval over the median")
    ax.set_title(f"Parameters{f' ({len(found) - len(shown)} more)' if len(found) > len(shown) else ''}", fontsize=11)
    ax.grid(axis="y", visible=False)
    return ax


def draw_fit(report: FitReport | KeptFitReport) -> Figure:
    """Bandwidth by size of collectives; else shares of variance, and fitted rows against replicated ones or parameters."""
    fit, card = report.fit, report.card()
    summary = to_plain(fit)
    is_kept = isinstance(report, KeptFitReport)
    if is_kept and report.bandwidths:
        return plot_bandwidths(report.bandwidths, summary)
    figure = plot_fit(summary, report.replicated if is_kept else None)
    if named := card.facts.get("stands out"):
        figure.suptitle(f"{fit.model}: {_verdict(summary)}; stands out: {named}", fontsize=11)
    return figure
