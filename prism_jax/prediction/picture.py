"""One figure of a whole prediction, for a paper or a slide."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..core.picture import new_figure, style
from ..explain.picture import plot_breakdown, plot_owners
from ..explain.types import Explanation
from ..result.distribution import StepTimeDistribution
from ..result.picture import plot_model_interval, plot_step_time
from .report import PredictionReport


def plot_prediction(
    distribution: StepTimeDistribution,
    explanation: Explanation | None,
    title: str,
    model_interval_s: tuple[float, float] | None = None,
) -> Figure:
    """The distribution of the step time on the left; where the time goes and who owns the p95 on the right.

    Args:
        distribution: what `predict` returns.
        explanation: what `explain` returns; None: the left half alone.
        title: of the figure.
        model_interval_s: 90 % interval of the median step that would be measured, drawn below the distribution, which holds for
            an exact cost model only; None: the cost model leaves nothing open.
    """
    with style():
        size = 12.0 if explanation else 8.0, 6.2 if model_interval_s else 5.6
        figure = new_figure(size, title)
        whole = figure.add_gridspec(1, 2, width_ratios=(1.2, 1.0)) if explanation else figure.add_gridspec(1, 1)
        left = whole[0].subgridspec(2, 1, height_ratios=(7.0, 1.0)) if model_interval_s else whole[0].subgridspec(1, 1)
        name = "Step time if the cost model is exact" if model_interval_s else "Step time"
        plot_step_time(distribution, ax=figure.add_subplot(left[0])).set_title(name)
        if explanation:
            right = whole[1].subgridspec(2, 1)
            plot_breakdown(explanation, ax=figure.add_subplot(right[0])).set_title("Where the mean step goes")
            plot_owners(explanation, ax=figure.add_subplot(right[1])).set_title("Reduction of p95 without one source")
        if model_interval_s:
            below = plot_model_interval(distribution, model_interval_s, figure.add_subplot(left[1]))
            below.set_title("What the cost model leaves open")
    return figure


def draw_prediction(report: PredictionReport) -> Figure:
    """The distribution, and where the time goes."""
    job, band = report.parts.job, report.model_band_s
    title = f"{job.name}: {job.model.name} on {job.plan.n_devices:,} x {job.cluster.device.name}"
    interval_s = (band.p5, band.p95) if band.p5 < band.p95 else None
    return plot_prediction(report.parts.distribution, report.parts.explanation, title, interval_s)
