"""Heat map of the workers of a recorded job: who slows the others down."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from ..explain.types import Stragglers
from .style import style

MOST_NUMBERED = 96  # workers; more would be a grey mass of digits


def plot_workers(found: Stragglers, rank: NDArray, title: str) -> Figure:
    """Slowdown that every worker alone causes, by pipeline stage and data-parallel rank; a box marks the worst.

    Args:
        found: who slowed the job down.
        rank: [replica, stage] global rank of every worker.
        title: of the figure.
    """
    values = found.by_worker.T  # stages are rows
    n_stage, n_replica = values.shape
    with style():
        figure = Figure(
            figsize=(float(np.clip(2.6 + 0.28 * n_replica, 5.0, 13.0)), 1.9 + 0.42 * n_stage), layout="constrained"
        )
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
        top = max(float(values.max()), 1.001)
        image = ax.imshow(values, cmap="OrRd", vmin=1.0, vmax=top, aspect="auto", interpolation="nearest")
        ax.set_xlabel("data-parallel rank")
        ax.set_ylabel("stage")
        ax.set_yticks(range(n_stage))
        ax.grid(False)
        if values.size <= MOST_NUMBERED:
            for (stage, replica), value in np.ndenumerate(values):
                dark = (value - 1.0) / (top - 1.0) > 0.6
                ax.text(
                    replica,
                    stage,
                    str(rank[replica, stage]),
                    ha="center",
                    va="center",
                    size=8,
                    color="white" if dark else "#333333",
                )
        for replica, stage in found.worst:
            ax.add_patch(_box(replica, stage))
        figure.colorbar(image, ax=ax, label="slowdown of the job by this worker", fraction=0.08, pad=0.02)
        worst = ", ".join(str(rank[cell]) for cell in found.worst[:6])
        ax.set_title(f"{title}: S = {found.slowdown:.3f}; worst {'rank' if len(found.worst) == 1 else 'ranks'} {worst}")
    return figure


def _box(replica: int, stage: int) -> Rectangle:
    return Rectangle((replica - 0.5, stage - 0.5), 1.0, 1.0, fill=False, edgecolor="#332288", linewidth=1.8)
