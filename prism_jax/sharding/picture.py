"""A choice of sharding as a picture: the tables of every GPU, before and after, and what every sharder reaches."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.picture import CYAN, GREY, INDIGO, OLIVE, PURPLE, ROSE, SAND, TEAL, WINE, new_axes, new_figure, style
from .assignment import Assignment, loads
from .report import ShardingReport
from .search import OPTIMISED, OWN, ShardingResult

COLOURS = (INDIGO, CYAN, TEAL, SAND, ROSE, OLIVE, PURPLE, WINE)  # of tables, in turn
SMALLEST_NAMED = 0.05  # of the tallest bar; smaller parts have no name in the picture
MOST_NAMED = 24  # GPUs; with more, bars are too narrow for names
WORDS = {OPTIMISED: "chosen", OWN: "the job's own", "lpt": "LPT"}


def draw_sharding(report: ShardingReport) -> Figure:
    """Two rows of stacked bars, one bar per GPU, and the objective of every method beside the lower bound."""
    result: ShardingResult = report.parts.found
    with style():
        figure = new_figure((13.0, 6.4))
        grid = figure.add_gridspec(2, 2, width_ratios=(1.7, 1.0))
        figure.suptitle(f"{report.job.name}: {_headline(result)}", x=0.01, ha="left")
        before, after = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
        plot_tables(result, result.baseline, ax=before).set_title(f"Tables: {_words(result.baseline)}")
        plot_tables(result, OPTIMISED, ax=after).set_title("Tables: chosen")
        top = max(before.get_ylim()[1], after.get_ylim()[1])
        before.set_ylim(0.0, top)
        after.set_ylim(0.0, top)
        plot_sharders(result, ax=figure.add_subplot(grid[:, 1])).set_title("Step time")
    return figure


def plot_tables(result: ShardingResult, method: str, *, ax: Axes | None = None) -> Axes:
    """Draws the noise-free milliseconds of the tables of every GPU, stacked; what all GPUs hold is grey, at the bottom."""
    ax = new_axes() if ax is None else ax
    one, n = result.assignments[method], result.problem.n_ranks
    shared_ms, blocks = _blocks(result, one)
    ranks = np.arange(n)
    ax.bar(ranks, np.full(n, shared_ms), 0.82, color=GREY)
    bottom = np.full(n, shared_ms)
    tallest = shared_ms + max((sum(ms for _, ms in own) for own in blocks), default=0.0)
    for rank, own in enumerate(blocks):
        for table, ms in own:
            colour = COLOURS[table % len(COLOURS)]
            ax.bar(rank, ms, 0.82, bottom[rank], color=colour, edgecolor="white", linewidth=0.6)
            if ms > SMALLEST_NAMED * tallest and n <= MOST_NAMED:
                ax.text(
                    rank,
                    bottom[rank] + 0.5 * ms,
                    result.problem.tables[table].name,
                    ha="center",
                    va="center",
                    color="white" if colour in (INDIGO, WINE, PURPLE, TEAL, OLIVE) else "black",
                    fontsize="x-small",
                )
            bottom[rank] += ms
    mean = float(bottom.mean())
    ax.axhline(mean, color="black", linewidth=0.8, linestyle="--")
    ax.annotate(
        "mean", (1.0, mean), xycoords=("axes fraction", "data"), xytext=(4, 0), textcoords="offset points", va="center"
    )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlim(-0.6, n - 0.4)
    ax.set_xlabel("GPU" + (" (grey: tables that all GPUs hold)" if shared_ms > 0.0 else ""))
    ax.set_ylabel("ms of lookups and updates")
    ax.grid(False, axis="x")
    return ax


def plot_sharders(result: ShardingResult, *, ax: Axes | None = None) -> Axes:
    """Draws the objective of every method, best on top, and the lower bound as a line."""
    ax = new_axes() if ax is None else ax
    reached = {name: result.value(name)[0] for name in result.batches_s}
    scale, unit = (1e3, "ms") if result.objective.unit == "s" else (1.0, result.objective.unit)
    names = sorted(reached, key=lambda name: -reached[name])
    values = [scale * reached[name] for name in names]
    colours = [INDIGO if name == OPTIMISED else ROSE if name == OWN else CYAN for name in names]
    ax.barh([_words(name) for name in names], values, color=colours)
    for row, value in enumerate(values):
        ax.text(value + 0.01 * max(values), row, f"{value:.4g}", va="center", fontsize="small")
    bound = scale * result.bound[1]
    ax.axvline(bound, color="black", linewidth=1.0, linestyle=":")
    ax.annotate(
        f"lower bound {bound:.4g}",
        (bound, 0.0),
        xycoords=("data", "axes fraction"),
        xytext=(4, 4),
        textcoords="offset points",
    )
    ax.set_xlim(0.0, 1.15 * max(values))
    ax.set_xlabel(f"{result.objective.name} of the step ({unit})")
    ax.tick_params(axis="y", length=0)
    ax.grid(False, axis="y")
    return ax


def _blocks(result: ShardingResult, one: Assignment) -> tuple[float, list[list[tuple[int, float]]]]:
    """Milliseconds of what all GPUs hold, and [rank] (table, milliseconds) of its own parts, longest first.

    A GPU's tables are one kernel, as long as its busiest resource: parts share its seconds in proportion.
    """
    task, codes = result.problem.task(one.cuts), np.array(one.codes)
    total = loads(task, one.columns).seconds_s[0, ..., 0].sum(axis=-1)
    way = task.codes_of_way(codes)
    alone = task.seconds_s[..., 0].max(axis=2).sum(axis=1)[way, np.arange(len(codes))]
    shared = float(alone[way > 0].sum())
    found = []
    for rank in range(task.n_ranks):
        own = np.flatnonzero(codes == rank)
        scale = total[rank] / max(shared + float(alone[own].sum()), 1e-300)
        pieces = sorted(own.tolist(), key=lambda piece: -alone[piece])
        found.append([(int(task.pieces.table[piece]), 1e3 * scale * float(alone[piece])) for piece in pieces])
    return 1e3 * shared, found


def _words(method: str) -> str:
    return WORDS.get(method, method.replace("_", " "))


def _headline(result: ShardingResult) -> str:
    gain, base = result.gain_over(result.baseline), result.value(result.baseline)[0]
    return (
        f"{result.objective.name} {gain.value_s / base:.1%} below {_words(result.baseline)} "
        f"(90 %: {gain.low_s / base:.1%} to {gain.high_s / base:.1%})"
    )
