"""The picture of run.py: errors at p99 and milliseconds of five ways to compose the durations of a step."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from prism_jax.core.picture import CYAN, INDIGO, OLIVE, ROSE, SAND, TEAL, figure_bytes, style

COLOURS = (INDIGO, ROSE, TEAL, OLIVE, SAND, CYAN)
MARKERS = {"reference": "*", "Monte Carlo": "o", "F^n": "s", "FFT": "D", "Clark": "^", "extreme values": "v"}
SMALLEST = 1e-6


def draw(every: Mapping[str, Mapping[str, Mapping[str, float]]]) -> bytes:
    """PNG: a colour per job, a marker per method."""
    with style():
        figure = Figure(figsize=(8.0, 5.0), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.subplots()
        for (name, rows), colour in zip(every.items(), COLOURS, strict=False):
            for method, own in rows.items():
                ax.plot(own["ms"], max(abs(own["p99"]), SMALLEST), MARKERS[method], color=colour, ms=7)
            ax.plot([], [], "s", color=colour, label=name)
        for method, marker in MARKERS.items():
            ax.plot([], [], marker, color="black", label=method)
        ax.axhline(5e-4, color="black", lw=0.8, ls=":")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("milliseconds of a processor")
        ax.set_ylabel("error of p99, relative (reference: its own)")
        ax.legend(fontsize="small", ncols=2)
        return figure_bytes(figure, "png")
