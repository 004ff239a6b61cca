"""Searches as pictures: the best plans and those in reach, the best plan of every size, and values that were tuned."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.errors import DataError
from ..core.picture import GREY, INDIGO, ROSE, SAND, TEAL, name_time_axis, new_axes, new_figure, style
from ..core.readable import prob
from .figures import ScreenedPlans, SearchedPlan
from .report import SizesReport, StudyReport, TuneReport

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
    return f"{plan.degrees}, mb {plan.micro_batch}, recompute {plan.recompute}{sharded}"


MOST_SIZES_NAMED = 12


def draw_sizes(report: SizesReport) -> Figure:
    """Draws the objective and the GPU time of the best plan by the number of GPUs; sizes on the Pareto front are filled."""
    sizes = sorted(report.sizes, key=lambda size: size.n_devices)
    n = np.array([size.n_devices for size in sizes], dtype=float)
    value, error = (np.array([getattr(s, name) or 0.0 for s in sizes]) for name in ("value_s", "value_error_s"))
    gpu_s = np.array([report.gpu_s(size) for size in sizes])
    on_front = np.array([size.n_devices in report.front for size in sizes])
    is_time = report.objective_unit == "s"
    with style():
        title = f"{report.job.name}: best plan by {report.objective} on each number of {report.job.device}"
        figure = new_figure((10.5, 4.6), title)
        left, right = figure.subplots(1, 2)
        left.errorbar(n, value, yerr=2.0 * error, fmt="none", ecolor=INDIGO, capsize=3)
        for ax, y, best in ((left, value, value[0] * n[0] / n), (right, gpu_s, np.full(len(n), gpu_s[0]))):
            if ax is right or is_time:
                ax.plot(n, best, "--", color=GREY, label=f"as efficient as on {sizes[0].n_devices:,} GPUs")
            ax.plot(n, y, "-", color=INDIGO, linewidth=1)
            for shown, face, name in (
                (on_front, INDIGO, "on the Pareto front"),
                (~on_front, "none", "others"),
            ):
                if shown.any():
                    ax.plot(n[shown], y[shown], "o", color=INDIGO, markerfacecolor=face, label=name)
            ax.set_xscale("log", base=2)
            ax.set_xticks(n, [f"{int(one):,}" for one in n])
            ax.set_xlabel("GPUs")
            ax.margins(0.12)
            ax.set_ylim(0.0, 1.15 * float(y.max()))
        for size, at_s in list(zip(sizes, value, strict=True))[:MOST_SIZES_NAMED]:
            where = {"xytext": (4, 6), "textcoords": "offset points", "fontsize": "small"}
            left.annotate(size.plan.degrees, (size.n_devices, at_s), **where)
        if is_time:
            name_time_axis(left.yaxis, report.objective)
        else:
            left.set_ylabel(f"{report.objective} ({report.objective_unit})")
        right.set_ylabel("GPU-seconds per step")
        right.legend(loc="lower left")
    return figure


MOST_NUMBERS_DRAWN = 40


def draw_tuned(report: TuneReport) -> Figure:
    """Draws the quantile before and after, with the interval of the gain, and every value over that of the job."""
    shown = [one for one in report.numbers if one.before > 0.0 and one.after > 0.0][:MOST_NUMBERS_DRAWN][::-1]
    name, rows = f"p{100.0 * report.p:g}", np.arange(len(shown))
    with style():
        figure = new_figure((10.5, 2.6 + 0.32 * max(len(shown), 3)), f"{report.job}: values tuned for {name}")
        left, right = figure.subplots(1, 2, width_ratios=(1.0, 1.4))
        times = np.array([report.best_s, report.base_s])
        off = report.base_s * np.array([report.gain - report.gain_interval[0], report.gain_interval[1] - report.gain])
        left.plot(report.base_s, 1, "o", color=ROSE, markersize=8)
        left.errorbar(
            report.best_s, 0, xerr=np.maximum(off, 0.0)[::-1, None], fmt="o", color=INDIGO, capsize=4, markersize=8
        )
        left.set_yticks([0, 1], ["tuned", "the job's own"])
        left.set_ylim(-0.6, 1.6)
        room = max(0.2 * float(np.ptp(times)), 1e-3 * report.base_s, 2.0 * float(off.max()))
        left.set_xlim(float(times.min()) - room, float(times.max()) + room)
        left.set_title(f"{name} {-report.gain:+.1%}, with its 90% interval")
        name_time_axis(left.xaxis, name)
        ratio = np.array([one.after / one.before for one in shown])
        right.hlines(rows, 1.0, ratio, color=SAND, linewidth=4)
        right.plot(ratio, rows, "o", color=INDIGO)
        right.axvline(1.0, color=ROSE, linestyle="--")
        right.set_yticks(rows, [f"{one.field} {one.label}" for one in shown])
        for row, one in zip(rows, shown, strict=True):
            text = f"{one.before:,.4g} to {one.after:,.4g} {one.unit}"
            right.annotate(text, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        right.set_xlabel("tuned value over the job's own")
        right.set_ylim(-0.6, max(len(shown), 1) - 0.4)
        right.margins(x=0.1)
        right.grid(axis="y", visible=False)
    return figure
