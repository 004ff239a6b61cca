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
        grid = figure.add_gridspec(2, 2, width_ratios=(1.2, 1.0))
        figure.suptitle(title, x=0.01, ha="left")
        plot_step_time(distribution, ax=figure.add_subplot(grid[:, 0])).set_title("Step time")
        plot_breakdown(explanation, ax=figure.add_subplot(grid[0, 1])).set_title("Where the mean step goes")
        plot_owners(explanation, ax=figure.add_subplot(grid[1, 1])).set_title("Whose variability owns the p95")
    return figure
