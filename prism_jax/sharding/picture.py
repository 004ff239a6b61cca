"""A choice of sharding as a picture: what every GPU computes and sends, before and after, and what every sharder reaches."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.picture import CYAN, INDIGO, ROSE, name_time_axis, new_axes, new_figure, style
from ..core.readable import unit_of_time
from .report import ShardingReport, words_of
from .search import OPTIMISED, OWN


def draw_sharding(report: ShardingReport) -> Figure:
    """Seconds of tables and bytes that are sent, one pair of bars per GPU, and the objective of every method.

    Raises:
        DataError: the report is of a version that did not keep what GPUs did before.
    """
    if report.ranks_before is None:
        raise DataError(
            "this answer was saved by an older version, which kept no loads to compare with. Shard again to draw it."
        )
    with style():
        card = report.card()
        figure = new_figure((13.0, 6.4), f"{card.title}\n{card.verdict}")
        grid = figure.add_gridspec(2, 2, width_ratios=(1.7, 1.0))
        loads = (report.ranks_before, report.ranks)
        seconds, sent = (
            np.array([[value(rank) for rank in ranks] for ranks in loads])
            for value in (lambda rank: rank.forward_s + rank.backward_s, lambda rank: rank.sent_bytes / 2**20)
        )
        names = words_of(report.gain_over), "chosen"
        top = _draw_pairs(seconds, names, figure.add_subplot(grid[0, 0]))
        top.set_title("Look-ups and updates of tables")
        name_time_axis(top.yaxis, "time")
        top.legend(loc="best", ncols=2)
        below = _draw_pairs(sent, names, figure.add_subplot(grid[1, 0]))
        below.set_title("Sent to every other GPU in an exchange")
        below.set_ylabel("MiB")
        below.set_xlabel("GPU")
        plot_sharders(report, ax=figure.add_subplot(grid[:, 1])).set_title("Step time")
    return figure


def _draw_pairs(values: Floats, names: tuple[str, str], ax: Axes) -> Axes:
    """Bars [before or chosen, GPU], and the largest of each as a line: the GPU that others wait for."""
    ranks = np.arange(values.shape[1])
    for shift, own, name, colour in zip((-0.2, 0.2), values, names, (ROSE, INDIGO), strict=True):
        ax.bar(ranks + shift, own, 0.38, color=colour, label=name)
        ax.axhline(float(own.max()), color=colour, linewidth=1.0, linestyle="--")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(-0.6, len(ranks) - 0.4)
    ax.set_ylim(0.0, 1.25 * float(values.max()) or 1.0)
    ax.grid(False, axis="x")
    return ax


def plot_sharders(report: ShardingReport, *, ax: Axes | None = None) -> Axes:
    """Draws the objective of every method, best on top, and the lower bound as a line."""
    ax = new_axes() if ax is None else ax
    reached = {OPTIMISED: report.best.steps, **report.baselines}
    names = sorted(reached, key=lambda name: -reached[name].value)
    largest = max(one.value for one in reached.values())
    scale, unit = unit_of_time(largest) if report.objective_unit == "s" else (1.0, report.objective_unit)
    values = [scale * reached[name].value for name in names]
    colours = [INDIGO if name == OPTIMISED else ROSE if name in (OWN, report.gain_over) else CYAN for name in names]
    ax.barh(["chosen" if name == OPTIMISED else words_of(name) for name in names], values, color=colours)
    for row, value in enumerate(values):
        ax.text(value + 0.01 * max(values), row, f"{value:.4g}", va="center", fontsize="small")
    bound = scale * report.lower_bound
    ax.axvline(bound, color="black", linewidth=1.0, linestyle=":")
    ax.annotate(
        f"lower bound {bound:.4g}",
        (bound, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 4),
        textcoords="offset points",
    )
    ax.set_xlim(0.0, 1.15 * max(values))
    ax.set_xlabel(f"{report.objective} of the step ({unit})")
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    return ax
