"""Figures without a window system, and figures as bytes. Writing files is the business of `io` and `cli`."""

from __future__ import annotations

from io import BytesIO

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Figure

from ..errors import DataError

FORMATS = ("png", "pdf", "svg", "jpg", "webp")
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # else no two files of one picture are alike


def new_axes(width_in: float = 7.0, height_in: float = 4.2) -> Axes:
    """Axes on a figure of their own, which no global state refers to."""
    figure = Figure(figsize=(width_in, height_in), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """The picture in the format of a file ending (".png", ".pdf", ".svg", ".jpg", ".webp"); the same bytes for the same picture.

    Raises:
        DataError: no such format.
    """
    kind = suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise DataError(f"picture format {suffix!r} is unknown. Name a file that ends in .{', .'.join(FORMATS)}.")
    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "prism-jax"}):
        figure.savefig(buffer, format=kind, metadata=UNDATED.get(kind))
    return buffer.getvalue()
