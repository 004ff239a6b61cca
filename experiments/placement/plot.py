"""The picture of run.py: p95 by the stage of the slow node, and the cost of a hot node by how slow it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from experiments.placement.stages import Stages
from prism_jax.core.picture import CYAN, GREY, INDIGO, OLIVE, PURPLE, ROSE, SAND, TEAL, figure_bytes, style

COLOURS = (INDIGO, ROSE, TEAL, OLIVE, SAND, CYAN, PURPLE)
SHOWN = 1.2  # slowdown of the left picture
PUBLISHED_HOT = (0.09, 0.35)


def draw(found: Mapping[str, list[Stages]], config: Mapping[str, Any]) -> bytes:
    """PNG of both."""
    with style():
        figure = Figure(figsize=(12.0, 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        for (name, stages), colour in zip(found.items(), COLOURS, strict=False):
            shown = next(one for one in stages if one.slowdown == SHOWN)
            place = np.linspace(0.0, 1.0, len(shown.over))
            left.plot(place, shown.over - 1.0, "o-", color=colour, label=f"{name}: {shown.spread:.1%}", markersize=4)
            slow = np.array([one.slowdown - 1.0 for one in stages])
            over = np.array([one.over for one in stages]) - 1.0
            if name in config["hot"] or name.endswith("65536"):
                right.plot(slow, np.median(over, axis=1), "o-", color=colour, label=name, markersize=4)
                right.fill_between(slow, over.min(axis=1), over.max(axis=1), color=colour, alpha=0.15, linewidth=0)
        left.set_xlabel("stage of the slow node, first to last")
        left.set_ylabel(f"p95 over that without a slow node (+{SHOWN - 1:.0%})")
        left.set_title("One slow node: worst over best stage")
        left.legend(fontsize="small")
        right.axhspan(*PUBLISHED_HOT, color=GREY, alpha=0.3, linewidth=0, label="published: 9 to 35%")
        right.set_xlabel("how much slower the hot node is")
        right.set_ylabel("p95 over that without it (band: best to worst stage)")
        right.set_title("One hot node")
        right.legend(fontsize="small")
        for ax in (left, right):
            ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        right.xaxis.set_major_formatter(PercentFormatter(1.0))
        return figure_bytes(figure, "png")
