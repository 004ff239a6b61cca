"""Pictures of a training run: when it is done, where its time goes, and how it depends on the time between failures."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.errors import DataError
from ..core.picture import DAY_S, INDIGO, ROSE, TEAL, hours_or_days, new_axes, new_figure, style
from ..core.readable import duration
from ..explain.picture import plot_bars
from ..explain.types import words
from .outcome import Response
from .report import DeadlineFacts, OutcomeFacts, RunCurve, RunReport

SMALLEST_SHARE = 1e-3  # of the wall time; below, a bucket is not drawn
SLOWEST = 1e3  # times the steps alone; longer runs are not drawn
IN_SIGHT = 1.5  # times the slowest run drawn: a later deadline stands in the legend alone


def plot_completion(
    curve: RunCurve, outcome: OutcomeFacts, deadline: DeadlineFacts | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draws the probability of being done over the wall time, by all that is uncertain and by luck alone, and the deadline.

    The band is the 90% interval of the expected time over failure rates and step time.
    """
    ax = new_axes() if ax is None else ax
    unit, unit_s = hours_or_days(curve.time_s[-1])
    for times, colour, label in ((curve.time_s, INDIGO, "all uncertainty"), (curve.chance_s, TEAL, "luck alone")):
        ax.plot([time_s / unit_s for time_s in times], curve.level, color=colour, label=label)
    low, high = outcome.expected_interval_s
    ax.axvspan(low / unit_s, high / unit_s, color=INDIGO, alpha=0.08, lw=0.0, label="90% of expected times")
    ideal_s, last_s = outcome.seconds["useful"], curve.time_s[-1]
    ax.axvline(ideal_s / unit_s, color="#444444", ls=":", label="steps alone, no variability")
    if deadline is not None:
        label = f"deadline {duration(deadline.deadline_s)}: {deadline.prob:.0%}"
        if deadline.deadline_s <= IN_SIGHT * last_s:
            ax.axvline(deadline.deadline_s / unit_s, color=ROSE, ls="--", label=label)
            last_s = max(last_s, deadline.deadline_s)
        else:
            ax.plot([], [], color=ROSE, ls="--", label=f"{label}, beyond this axis")
    ax.set_xlim(right=1.02 * max(last_s, ideal_s) / unit_s)
    ax.set_ylim(0.0, 1.0)
    ax.set_xlabel(unit)
    ax.set_ylabel("probability of being done")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, fontsize="small")
    return ax


def plot_lost(outcome: OutcomeFacts, *, ax: Axes | None = None) -> Axes:
    """Draws a bar for every bucket but the useful steps, with days (hours if all are short) and share of the mean wall time."""
    ax = new_axes() if ax is None else ax
    whole_s = outcome.time_s.mean
    lost_s = {name: s for name, s in outcome.seconds.items() if name != "useful" and abs(s) >= SMALLEST_SHARE * whole_s}
    unit, unit_s = hours_or_days(2.0 * max(lost_s.values(), default=0.0))
    labels = {name: f"{s / unit_s:.3g} {unit[0]}  {s / whole_s:.1%}" for name, s in lost_s.items()}
    plot_bars(ax, {name: s / unit_s for name, s in lost_s.items()}, labels)
    ax.set_xlabel(f"{unit} of the mean wall time; {words('useful')} take {outcome.seconds['useful'] / whole_s:.1%}")
    return ax


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
    """Draws when the run is done, and where its time goes; the response over the time between failures where that is not known.

    Raises:
        DataError: the report is of a version that kept no curve.
    """
    steps_s, found = report.n_steps * report.step_s, report.outcome
    title = f"{report.job.name}: {report.n_steps:,} steps on {report.job.n_devices:,} x {report.job.device}"
    with style():
        if found is None:
            figure = new_figure((8.0, 4.8), f"{title}: no failure rate is known")
            plot_response(report.response, steps_s, ax=figure.add_subplot())
            return figure
        if report.curve is None:
            raise DataError("this run was saved by an older version, which kept no curve. Predict it again to draw it.")
        figure = new_figure((12.0, 5.2), title)
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.2))
        plot_completion(report.curve, found, report.deadline, ax=left).set_title("When it is done")
        plot_lost(found, ax=right).set_title("Where the mean wall time goes")
    return figure
