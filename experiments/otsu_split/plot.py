"""Draws step times that were recorded and those that follow from either way to tell transfer from waiting."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.ticker import PercentFormatter

from prism_jax.core.arrays import Floats
from prism_jax.core.picture import GREY, INDIGO, ROSE, WINE, new_figure, style


def draw(curves: Mapping[str, tuple[Floats, Mapping[str, Floats]]], path: str) -> None:
    """Writes the picture: a panel per recording; not corrected by the recorded steps.

    Args:
        curves: recording -> its steps, and way -> drawn steps; seconds.
        path: of the picture.
    """
    with style():
        figure = new_figure((5.2 * len(curves), 4.2))
        for ax, (name, (recorded_s, drawn)) in zip(
            figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True
        ):
            share = np.arange(1, len(recorded_s) + 1) / len(recorded_s)
            ax.step(np.sort(recorded_s), share, where="post", color=GREY, label="recorded")
            for colour, (way, step_s) in zip((INDIGO, WINE, ROSE), drawn.items(), strict=False):
                ordered = np.sort(step_s)
                ax.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered), color=colour, label=way)
            ax.set_title(name)
            ax.set_xlabel("step time (s)")
            ax.yaxis.set_major_formatter(PercentFormatter(1.0))
        figure.axes[0].set_ylabel("steps that take at most this long")
        figure.axes[0].legend()
        figure.savefig(path)
