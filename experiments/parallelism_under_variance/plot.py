"""The picture of run.py: tails and the price of ignoring variability by its scale, and which kernels make the spread."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from prism_jax.core.picture import CYAN, INDIGO, OLIVE, PURPLE, ROSE, SAND, TEAL, colour, figure_bytes, style

COLOURS = (INDIGO, ROSE, TEAL, OLIVE, SAND, CYAN, PURPLE)
Figures = Mapping[str, Mapping[str, float]]
LEAST_SHARE = 0.01  # smaller ones are not drawn


def draw(plans: Figures, kernels: Figures) -> bytes:
    """PNG of both."""
    with style():
        figure = Figure(figsize=(12.0, 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2)
        for name, own in zip(dict.fromkeys(row.rsplit(" x", 1)[0] for row in plans), COLOURS, strict=False):
            rows = [
                (float(row.rsplit(" x", 1)[1]), found) for row, found in plans.items() if row.startswith(name + " x")
            ]
            scale = [at for at, _ in rows]
            left.plot(
                scale,
                [found["tail"] - 1.0 for _, found in rows],
                "o-",
                color=own,
                label=f"{name}: p95 of the best plan",
            )
            left.plot(
                scale, [found["ignoring"] for _, found in rows], "o--", color=own, label=f"{name}: price of ignoring it"
            )
        left.set_xlabel("variability, times that of the preset")
        left.set_ylabel("over the noise-free time; over the best plan")
        left.yaxis.set_major_formatter(PercentFormatter(1.0))
        left.set_title("Best plan when everything varies more")
        left.legend(fontsize="small")
        jobs = [*dict.fromkeys(row.rsplit(" ", 1)[0] for row in kernels)]
        names = [*dict.fromkeys(row.rsplit(" ", 1)[1] for row, own in kernels.items() if own["spread"] > LEAST_SHARE)]
        for k, name in enumerate(names):
            share = [kernels.get(f"{job} {name}", {"spread": 0.0})["spread"] for job in jobs]
            at = np.arange(len(jobs)) + (k - len(names) / 2 + 0.5) * 0.8 / len(names)
            right.barh(
                at, share, height=0.8 / len(names), color=colour(name), label=name, edgecolor="white", linewidth=0.4
            )
        right.set_yticks(range(len(jobs)), jobs)
        right.invert_yaxis()
        right.set_xlabel("share of p95 - p50 that goes with its variability")
        right.xaxis.set_major_formatter(PercentFormatter(1.0))
        right.set_title("Which kernel to stabilise")
        right.legend(fontsize="small")
        return figure_bytes(figure, "png")
