"""The picture of run.py: what one per cent of each part takes off p95, by NVLink domain and by how much the network varies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from prism_jax.core.picture import INDIGO, ROSE, SAND, TEAL, figure_bytes, style

COLOURS = {"compute": INDIGO, "bandwidth": TEAL, "clock_spread": SAND, "network_cv": ROSE}


def draw(every: Mapping[str, Sequence[Any]]) -> bytes:
    """PNG: a row per job, a panel per domain; of the points of the grid by job."""
    domains = sorted({own.domain for found in every.values() for own in found})
    with style():
        figure = Figure(figsize=(4.2 * len(domains), 3.2 * len(every)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(every), len(domains), squeeze=False, sharey="row")
        for row, (name, found) in zip(axes, every.items(), strict=True):
            for ax, domain in zip(row, domains, strict=True):
                rows = [own for own in found if own.domain == domain and set(own.factors[:-1]) == {1}]
                cv = [own.factors[-1] for own in rows]
                for axis, colour in COLOURS.items():
                    saved = [dict(own.ranked)[axis] for own in rows]
                    ax.plot(cv, np.maximum(saved, 1e-4), "o-", color=colour, label=axis.replace("_", " "))
                ax.set_xscale("log", base=2)
                ax.set_yscale("log")
                ax.set_title(f"{name}, NVLink domain {domain}", fontsize="medium")
                ax.set_xlabel("network CV, times today's")
            row[0].set_ylabel("% off p95 for 1% better")
        axes[0][0].legend(fontsize="small")
        return figure_bytes(figure, "png")
