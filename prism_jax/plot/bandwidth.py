"""Fitted collectives as a picture: bus bandwidth by message size, measured and by the law with its band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from .figure import new_axes
from .style import CYAN, GREEN, INDIGO, OLIVE, PURPLE, ROSE, SAND, TEAL, WINE, style

COLOURS = (INDIGO, ROSE, TEAL, SAND, WINE, CYAN, GREEN, PURPLE, OLIVE)
MOST_PANELS, MOST_CURVES = 6, len(COLOURS)
COLUMNS = 3
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
        figure = Figure(figsize=(1.5 + 4.7 * n_column, 0.6 + 4.0 * n_row), layout="constrained")
        FigureCanvasAgg(figure)
        axes = list(np.atleast_1d(figure.subplots(n_row, n_column)).ravel())
        for op in shown:
            plot_bandwidth([curve for curve in curves if curve.op == op], ax=axes.pop(0))
        for empty in axes:
            empty.axis("off")
        verdict = "good" if summary["verdict"]["ok"] else "failed"
        rest = f", {len(ops) - len(shown)} more not shown" if len(ops) > len(shown) else ""
        figure.suptitle(f"{summary['model']}: {verdict} fit{rest}", fontsize=11)
    return figure


def plot_bandwidth(curves: Sequence[Any], *, ax: Axes | None = None) -> Axes:
    """Bus bandwidth of one collective by message size: measured points, and the fitted curves with their 90 % bands."""
    ax = new_axes() if ax is None else ax
    shown = _spread(curves, MOST_CURVES)
    places = [_place(curve) for curve in shown]
    for curve, place, tint in zip(shown, places, COLOURS, strict=False):
        low, centre, high = curve.bus / GB
        name = f"{place}, {curve.fabric}" if places.count(place) > 1 and curve.fabric else place
        ax.fill_between(curve.n_bytes, low, high, color=tint, alpha=0.25, linewidth=0)
        ax.plot(curve.n_bytes, centre, color=tint, label=name)
        ax.plot(curve.measured_bytes, curve.measured_bus / GB, ".", color=tint, markersize=5)
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
    ax.legend(loc="upper left", title="points measured, band 90 %")
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


def _spread(curves: Sequence[Any], most: int) -> list[Any]:
    """As many as `most` of them, evenly, with the first and the last."""
    chosen = np.unique(np.linspace(0, len(curves) - 1, min(most, len(curves))).round().astype(int))
    return [curves[i] for i in chosen]
