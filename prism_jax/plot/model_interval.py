"""The modelled steps inside the interval that the cost model leaves for a measurement."""

from __future__ import annotations

from matplotlib.axes import Axes

from ..result import StepTimeDistribution
from .style import INDIGO

OVERHANG = 0.35  # of the interval, drawn on either side: room for words


def plot_model_interval(distribution: StepTimeDistribution, interval_s: tuple[float, float], ax: Axes) -> Axes:
    """Draws one bar from end to end of the interval, and in it the modelled steps from p5 to p99 and their median.

    Args:
        distribution: what `predict` returns.
        interval_s: 90 % interval of the median step that would be measured, seconds.
        ax: where to draw.
    """
    low, high = interval_s
    p5, median, p99 = (distribution.quantile(p) for p in (0.05, 0.5, 0.99))
    ax.barh(0.0, high - low, left=low, height=0.5, color=INDIGO, alpha=0.18)
    ax.barh(0.0, p99 - p5, left=p5, height=0.5, color=INDIGO)
    ax.plot(median, 0.0, "o", color=INDIGO, markeredgecolor="white", zorder=4)
    ax.text(low, 0.0, f"{low:.3g} s ", ha="right", va="center", fontsize="small")
    ax.text(high, 0.0, f" {high:.3g} s", ha="left", va="center", fontsize="small")
    margin = OVERHANG * (high - low)
    ax.set_xlim(low - margin, high + margin)
    ax.set_ylim(-0.6, 0.6)
    ax.set_yticks([])
    ax.set_xlabel("90 % interval of the median step that would be measured; dark: modelled steps, p5 to p99")
    return ax
