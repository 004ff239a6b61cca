"""One figure of a whole prediction, for a paper or a slide."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..explain.types import Explanation
from ..result import StepTimeDistribution
from .bars import plot_breakdown, plot_owners
from .step_time import plot_step_time
from .style import style


def plot_prediction(distribution: StepTimeDistribution, explanation: Explanation, title: str) -> Figure:
    """The distribution of the step time on the left; where the time goes and who owns the p95 on the right."""
    with style():
        figure = Figure(figsize=(12.0, 5.6), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subfigures(1, 2, width_ratios=(1.15, 1.0), wspace=0.03)
        figure.suptitle(title, x=0.01, ha="left")
        ax = plot_step_time(distribution, ax=left.add_subplot())
        ax.set_title("Step time")
        upper, lower = right.subplots(2, 1)
        plot_breakdown(explanation, ax=upper).set_title("Where the mean step goes")
        plot_owners(explanation, ax=lower).set_title("Whose variability owns the p95")
    return figure
