"""One figure of a whole prediction, for a paper or a slide."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from ..core.errors import DataError
from ..core.picture import new_figure, style
from ..explain.picture import plot_breakdown, plot_owners
from ..explain.types import Explanation
from ..result.distribution import StepCurve, StepTimeDistribution, step_curve
from ..result.picture import plot_model_interval, plot_step_time
from .report import PredictionReport


def plot_prediction(
    distribution: StepTimeDistribution | StepCurve,
    explanation: Explanation | None,
    title: str,
    model_interval_s: tuple[float, float] | None = None,
) -> Figure:
    """The distribution of the step time on the left; where the time goes and what makes the p95 on the right.

    Args:
        distribution: what `predict` returns, or its curve.
        explanation: what `explain` returns; None: the left half alone.
        title: of the figure.
        model_interval_s: 90% interval of the median step that would be measured, drawn below the distribution, which holds for
            an exact cost model only; None: the cost model leaves nothing open.
    """
    curve = distribution if isinstance(distribution, StepCurve) else step_curve(distribution)
    if explanation is None:
        return _draw(curve, {}, {}, None, title, model_interval_s)
    share = explanation.allocation.share
    return _draw(curve, explanation.breakdown_s, explanation.p95_owner_s, share, title, model_interval_s)


def _draw(
    curve: StepCurve,
    breakdown_s: Mapping[str, float],
    owner_s: Mapping[str, float],
    fleet_share: float | None,
    title: str,
    model_interval_s: tuple[float, float] | None,
) -> Figure:
    with style():
        size = 12.0 if breakdown_s else 8.0, 6.2 if model_interval_s else 5.6
        figure = new_figure(size, title)
        whole = figure.add_gridspec(1, 2, width_ratios=(1.2, 1.0)) if breakdown_s else figure.add_gridspec(1, 1)
        left = whole[0].subgridspec(2, 1, height_ratios=(7.0, 1.0)) if model_interval_s else whole[0].subgridspec(1, 1)
        name = "Step time if the cost model is exact" if model_interval_s else "Step time"
        plot_step_time(curve, ax=figure.add_subplot(left[0])).set_title(name)
        if breakdown_s:
            right = whole[1].subgridspec(2, 1)
            plot_breakdown(breakdown_s, ax=figure.add_subplot(right[0])).set_title("Where the mean step goes")
            plot_owners(owner_s, fleet_share, ax=figure.add_subplot(right[1])).set_title(
                "Reduction of p95 without one source"
            )
        if model_interval_s:
            below = plot_model_interval(curve, model_interval_s, figure.add_subplot(left[1]))
            below.set_title("Model error: where the measured median would lie")
    return figure


def draw_prediction(report: PredictionReport) -> Figure:
    """The distribution, and where the time goes.

    Raises:
        DataError: the report is of a version that kept no curve.
    """
    if report.curve is None:
        raise DataError("this prediction was saved by an older version, which kept no curve. Predict again to draw it.")
    job, band, memory = report.job, report.model_band_s, report.memory_bytes_per_gpu
    axes = " x ".join(f"{axis} {getattr(job, axis)}" for axis in ("tp", "cp", "pp", "dp") if getattr(job, axis) > 1)
    fill = f"memory {memory.total / memory.capacity:.0%}" if report.fits else "does not fit"
    title = f"{job.name}: {job.model} on {job.n_devices:,} x {job.device}\n{axes or 'one device'}; MFU {report.mfu:.0%}; {fill}"
    interval_s = (band.p5, band.p95) if band.p5 < band.p95 else None
    return _draw(report.curve, report.breakdown_s, report.p95_owner_s, report.fleet_share, title, interval_s)
