"""A search as a picture: the best plans with their quantiles, and simulated plans by memory and time."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.errors import DataError
from ..core.picture import GREY, INDIGO, ROSE, SAND, TEAL, name_time_axis, new_axes, new_figure, style
from ..core.text_table import prob
from .figures import ScreenedPlans, SearchedPlan
from .report import StudyReport, degrees_words

GIB = 2.0**30
MOST_ROWS = 20


def draw_study(report: StudyReport) -> Figure:
    """The best plan of each kind, and the memory and noise-free time of plans that were simulated.

    Raises:
        DataError: the report is of a version that kept no simulated plans.
    """
    if report.screened is None:
        raise DataError(
            "this search was saved by an older version, which kept no simulated plans. Search again to draw it."
        )
    with style():
        counts = f"{report.n_plans:,} plans, {report.n_feasible:,} feasible, {report.n_raced:,} compared"
        height = 2.6 + 0.32 * max(10, min(len(report.unlike), MOST_ROWS))
        figure = new_figure((13.5, height), f"{report.job.name}: {counts} on {report.objective}")
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
        plot_top(report, ax=left).set_title("Best plan of each kind, with its probability of being the best")
        plot_memory(report, report.screened, ax=right).set_title("Plans in reach")
    return figure


def plot_top(report: StudyReport, *, ax: Axes | None = None) -> Axes:
    """Draws, per plan, p50 to p99 as a line, the objective as a point with its Monte Carlo error, the noise-free time as a tick.

    An objective that is no time stands alone. The job's own plan is a line, as far as it was evaluated.
    """
    ax = new_axes() if ax is None else ax
    shown = report.unlike[:MOST_ROWS][::-1]
    rows, is_time = np.arange(len(shown)), report.objective_unit == "s"
    if is_time:
        ax.hlines(rows, [c.p50_s for c in shown], [c.p99_s for c in shown], color=SAND, linewidth=5, label="p50 to p99")
        ax.plot([c.step_s for c in shown], rows, "|", color=GREY, markersize=11, label="without variability")
    value, error = [c.value_s for c in shown], [2.0 * c.value_error_s for c in shown]
    name = f"{report.objective} ± 2 standard errors"
    ax.errorbar(value, rows, xerr=error, fmt="o", color=INDIGO, markersize=5, capsize=3, label=name)
    if report.gain is not None:
        ax.axvline(report.gain.base_s, color=ROSE, ls="--", label="the job's own plan")
    for row, c in zip(rows, shown, strict=True):
        ax.annotate(prob(c.prob_best), (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize="small")
    ax.set_yticks(rows, [_label(c.plan) for c in shown])
    if is_time:
        name_time_axis(ax.xaxis, "step time")
    else:
        ax.set_xlabel(f"{report.objective} ({report.objective_unit})")
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=2)
    return ax


def plot_memory(report: StudyReport, screened: ScreenedPlans, *, ax: Axes | None = None) -> Axes:
    """Simulated plans not far from the best, the finalists, and the memory of the device."""
    ax = new_axes() if ax is None else ax
    memory = np.array(screened.memory_bytes) / GIB
    ax.plot(memory, screened.step_s, ".", color=GREY, markersize=3, label="simulated")
    finalists = {(c.memory_bytes / GIB, c.step_s) for c in (*report.top, *report.unlike)}
    ax.plot(*np.array(sorted(finalists)).T, "o", color=TEAL, markersize=5, label="finalists")
    ax.plot(report.best.memory_bytes / GIB, report.best.step_s, "o", color=INDIGO, markersize=8, label="best")
    ax.axvline(report.job.hbm_bytes / GIB, color=ROSE, linestyle="--", label="device memory")
    ax.set_xlabel("peak memory per device (GiB)")
    times = [*screened.step_s, *(step_s for _, step_s in finalists)]
    ax.set_ylim(0.98 * min(times), 1.02 * max(times))
    name_time_axis(ax.yaxis, "step time without variability")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    return ax


def _label(plan: SearchedPlan) -> str:
    """Label that tells kinds of plans apart, with the micro-batch."""
    sharded = "" if plan.sharding == "none" else f", {plan.sharding}"
    return f"{degrees_words(plan)}, mb {plan.micro_batch}, recompute {plan.recompute}{sharded}"
