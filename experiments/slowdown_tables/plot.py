"""Draws the probability of slow steps and slow jobs over the number of GPUs, a line per spread."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.ticker import PercentFormatter

from experiments.slowdown_tables.tables import SlowdownRow
from prism_jax.core.picture import new_figure, style


def draw(rows: Sequence[SlowdownRow], slowdown: float, path: str) -> None:
    """Writes the picture: a column per job, steps above and whole jobs below."""
    names, scales = list(dict.fromkeys(row.job for row in rows)), sorted({row.scale for row in rows})
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, len(scales)))
    with style():
        figure = new_figure((3.6 * len(names), 6.0))
        axes = figure.subplots(2, len(names), sharex=True, sharey=True, squeeze=False)
        for column, name in enumerate(names):
            for colour, scale in zip(colours, scales, strict=True):
                mine = [row for row in rows if (row.job, row.scale) == (name, scale)]
                n_gpu = [row.n_gpu for row in mine]
                for ax, probs in (
                    (axes[0, column], [row.step_prob[slowdown] for row in mine]),
                    (axes[1, column], [row.job_prob[slowdown] for row in mine]),
                ):
                    ax.plot(n_gpu, probs, "o-", color=colour, markersize=3, label=f"CV x {scale:g}")
            axes[0, column].set_title(name)
            axes[1, column].set_xlabel("GPUs")
            axes[1, column].set_xscale("log", base=2)
        for row, what in enumerate(("a step", "the whole job")):
            axes[row, 0].set_ylabel(f"P({what} is {slowdown:.0%} slower\nthan without variability)")
            axes[row, 0].yaxis.set_major_formatter(PercentFormatter(1.0))
        axes[0, 0].legend()
        figure.savefig(path)
