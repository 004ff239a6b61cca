"""A search as a picture: the best plans with their quantiles, and all simulated plans by memory and time."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.picture import GREY, INDIGO, ROSE, SAND, TEAL, name_time_axis, new_axes, new_figure, style
from ..plan.plan import ParallelPlan
from .report import StudyReport
from .study import Study

GIB = 2.0**30
MOST_DOTS = 20_000
MOST_ROWS = 20
IN_SIGHT = 1.4  # times the fastest plan: slower ones are not drawn


def draw_study(report: StudyReport) -> Figure:
    """The best plans beside the memory and noise-free time of all plans that were simulated."""
    study: Study = report.parts.found
    top = len(report.top)
    with style():
        figure = new_figure((13.0, 2.2 + 0.32 * max(10, min(top, MOST_ROWS))))
        left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
        plot_top(study, min(top, MOST_ROWS), ax=left).set_title("Best plans")
        plot_memory(study, ax=right).set_title("All plans in reach")
        screen = study.screen
        counts = f"{screen.n_plans:,} plans, {screen.n_feasible:,} feasible, {study.n_raced:,} raced"
        figure.suptitle(f"{report.job.name}: {counts} on {study.objective.name}", x=0.01, ha="left")
    return figure


def plot_top(study: Study, top: int, *, ax: Axes | None = None) -> Axes:
    """Per plan p50 to p99 as a line, the objective as a point with its Monte Carlo error, the noise-free time as a tick."""
    ax = new_axes() if ax is None else ax
    shown = study.top(top)[::-1]
    rows = np.arange(len(shown))
    ax.hlines(rows, [c.p50_s for c in shown], [c.p99_s for c in shown], color=SAND, linewidth=5, label="p50 to p99")
    ax.plot([c.step_s for c in shown], rows, "|", color=GREY, markersize=11, label="without variability")
    value, error = [c.value_s for c in shown], [2.0 * c.value_error_s for c in shown]
    name = f"{study.objective.name} ± 2 standard errors"
    ax.errorbar(value, rows, xerr=error, fmt="o", color=INDIGO, markersize=5, capsize=3, label=name)
    ax.set_yticks(rows, [_label(c.plan) for c in shown])
    name_time_axis(ax.xaxis, "step time")
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)
    return ax


def plot_memory(study: Study, *, ax: Axes | None = None) -> Axes:
    """Simulated plans not far from the best, the finalists, and the memory of the device."""
    ax = new_axes() if ax is None else ax
    screen = study.screen
    known = screen.order()[:MOST_DOTS]
    memory, time = screen.memory_bytes[known] / GIB, screen.step_s[known]
    ax.plot(memory, time, ".", color=GREY, markersize=3, label="simulated", rasterized=True)
    points = [(c.memory_bytes / GIB, c.step_s) for c in study.candidates]
    ax.plot(*np.array(points).T, "o", color=TEAL, markersize=5, label="finalists")
    ax.plot(*points[0], "o", color=INDIGO, markersize=8, label="best")
    ax.axvline(study.job.cluster.device.hbm_bytes / GIB, color=ROSE, linestyle="--", label="memory of the device")
    ax.set_xlabel("peak memory per device (GiB)")
    fastest = min(c.step_s for c in study.candidates)
    slowest = max(c.step_s for c in study.candidates)
    ax.set_ylim(0.98 * fastest, max(IN_SIGHT * fastest, 1.02 * slowest))
    name_time_axis(ax.yaxis, "step time without variability")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    return ax


def _label(plan: ParallelPlan) -> str:
    """Degrees, pipeline, micro-batch, recomputation, and the overlaps that are switched off."""
    degrees = " ".join(
        f"{axis}{getattr(plan, axis)}" for axis in ("tp", "cp", "pp", "dp", "ep") if getattr(plan, axis) > 1
    )
    chunks = f" v{plan.virtual_stages}" if plan.virtual_stages > 1 else ""
    pipeline = f" {plan.schedule}{chunks}" if plan.pp > 1 else ""
    off = "".join(
        f" -{axis}" for axis in ("dp", "tp", "pp") if not getattr(plan.overlap, axis) and getattr(plan, axis) > 1
    )
    return f"{degrees}{pipeline} mb{plan.micro_batch} {plan.recompute}{off}"
