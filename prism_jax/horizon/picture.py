"""Pictures of a training run: when it is done, where its time goes, and how it depends on the time between failures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.picture import INDIGO, ROSE, TEAL, new_axes, new_figure, style
from ..explain.picture import plot_bars
from ..explain.types import words
from .advice import response
from .report import RunReport
from .steps import Response, RunOutcome

DAY_S, HOUR_S = 86400.0, 3600.0
SMALLEST_SHARE = 1e-3  # of the wall time; below, a bucket is not drawn
BEYOND = 0.995  # of the worlds lie within the axis
SLOWEST = 1e3  # times the steps alone; longer runs are not drawn


def plot_run(outcome: RunOutcome, known: RunOutcome, title: str, deadline_s: float | None = None) -> Figure:
    """When a run is done on the left, where its time goes on the right.

    Args:
        outcome: over chance and over what is not known.
        known: over chance alone.
        title: of the figure.
        deadline_s: None: none.
    """
    with style():
        figure = new_figure((12.0, 5.0), title)
        grid = figure.add_gridspec(1, 2, width_ratios=(1.0, 1.2))
        plot_completion(outcome, known, deadline_s, ax=figure.add_subplot(grid[0])).set_title("When it is done")
        plot_lost(outcome, ax=figure.add_subplot(grid[1])).set_title("Where the mean wall time goes")
    return figure


def plot_completion(
    outcome: RunOutcome, known: RunOutcome, deadline_s: float | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draws the probability of being done over days, with what is not known and without, and the deadline.

    The band is the 90 % interval of the expected time over what is not known.
    """
    ax = new_axes() if ax is None else ax
    for found, colour, label in ((outcome, INDIGO, "with what is not known"), (known, TEAL, "chance alone")):
        time_d = np.sort(found.time_s) / DAY_S
        ax.plot(time_d, (np.arange(len(time_d)) + 0.5) / len(time_d), color=colour, label=label)
    low, high = outcome.band()
    ax.axvspan(low / DAY_S, high / DAY_S, color=INDIGO, alpha=0.08, lw=0.0)
    ideal_d = float(known.seconds["useful"].mean()) / DAY_S
    ax.axvline(ideal_d, color="#444444", ls=":", label="steps alone, without variability")
    if deadline_s is not None:
        ax.axvline(deadline_s / DAY_S, color=ROSE, ls="--", label=f"deadline: {outcome.prob_by(deadline_s)[0]:.0%}")
    ax.set_xlim(right=1.02 * max(outcome.quantile(BEYOND) / DAY_S, (deadline_s or 0.0) / DAY_S, ideal_d))
    ax.set_ylim(0.0, 1.0)
    ax.set_xlabel("days")
    ax.set_ylabel("probability of being done")
    ax.legend(loc="lower right", fontsize="small")
    return ax


def plot_lost(outcome: RunOutcome, *, ax: Axes | None = None) -> Axes:
    """Draws a bar for every bucket but the useful steps, with days (hours if all are short) and share of the mean wall time."""
    ax = new_axes() if ax is None else ax
    shares = outcome.shares()
    longest_s = max((share for name, share in shares.items() if name != "useful"), default=0.0) * outcome.mean_s
    unit, unit_s = ("days", DAY_S) if longest_s >= DAY_S else ("hours", HOUR_S)
    whole = outcome.mean_s / unit_s
    lost = {name: share for name, share in shares.items() if name != "useful" and abs(share) >= SMALLEST_SHARE}
    labels = {name: f"{share * whole:.3g} {unit[0]}  {share:.1%}" for name, share in lost.items()}
    plot_bars(ax, {name: share * whole for name, share in lost.items()}, labels)
    ax.set_xlabel(f"{unit} of the mean wall time; {words('useful')} take {shares['useful']:.1%}")
    return ax


def plot_unknown_run(rows: Sequence[Response], steps_s: float, title: str) -> Figure:
    """The response over the mean time between failures, for a run of which these are not known; as `plot_response`."""
    with style():
        figure = new_figure((8.0, 4.8))
        plot_response(rows, steps_s, ax=figure.add_subplot()).set_title(title)
    return figure


def plot_response(rows: Sequence[Response], steps_s: float, *, ax: Axes | None = None) -> Axes:
    """Draws the expected time over the mean time between failures, each at its best interval.

    Args:
        steps_s: time of the steps without interruptions.
    """
    ax = new_axes() if ax is None else ax
    drawn = [row for row in rows if row.expected_s < SLOWEST * steps_s]
    ax.plot([row.mtbf_h for row in drawn], [row.expected_s / DAY_S for row in drawn], "o-", color=INDIGO)
    for row in drawn:
        at = (row.mtbf_h, row.expected_s / DAY_S)
        ax.annotate(f"{row.goodput:.0%}", at, xytext=(4, 6), textcoords="offset points", fontsize="small")
    ax.axhline(steps_s / DAY_S, color="#444444", ls=":", label="without interruptions")
    ax.set_xscale("log")
    ax.set_xticks([row.mtbf_h for row in drawn], [f"{row.mtbf_h:g}" for row in drawn])
    ax.minorticks_off()
    ax.set_xlabel("hours between failures (labels: goodput)")
    ax.set_ylabel("expected days")
    ax.legend(fontsize="small")
    return ax


def draw_run(report: RunReport) -> Figure:
    """When the run is done, and where its time goes; the response over the time between failures where that is not known."""
    parts, steps_s = report.parts, report.n_steps * report.step_s
    title = f"{report.job.name}: {report.n_steps:,} steps on {report.job.n_devices:,} x {report.job.device}"
    if parts.outcome is not None and parts.known is not None:
        return plot_run(parts.outcome, parts.known, title, report.deadline and report.deadline.deadline_s)
    return plot_unknown_run(response(parts.run), steps_s, f"{title}: nothing is said of failures")
