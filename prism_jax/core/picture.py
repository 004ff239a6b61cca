"""Figures without a window system, also as bytes; one style sheet, one colour per kind of work, nothing changed at import."""

from __future__ import annotations

from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Figure
from matplotlib.ticker import FuncFormatter

from .errors import DataError
from .kernels import KERNEL_CLASSES
from .readable import unit_of_time

FORMATS = ("png", "pdf", "svg", "jpg", "webp")
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # else no two files of one picture are alike


def new_figure(size_in: tuple[float, float], title: str = "") -> Figure:
    """Makes a figure of that width and height which no global state refers to, with a title at its left."""
    figure = Figure(figsize=size_in, layout="constrained")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def new_axes(width_in: float = 7.0, height_in: float = 4.2) -> Axes:
    """Axes on a figure of their own, which no global state refers to."""
    return new_figure((width_in, height_in)).add_subplot()


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """The picture in the format of a file ending (".png", ".pdf", ".svg", ".jpg", ".webp"); the same bytes for the same picture.

    Raises:
        DataError: no such format.
    """
    kind = suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise DataError(f"picture format {suffix!r} is unknown. Name a file that ends in .{', .'.join(FORMATS)}.")
    buffer = BytesIO()
    with rc_context({"svg.hashsalt": "prism-jax", "svg.fonttype": "none"}):
        figure.savefig(buffer, format=kind, metadata=UNDATED.get(kind))
    return buffer.getvalue()


def name_time_axis(axis: Axis, name: str) -> None:
    """Names an axis of seconds, whose ends are set, and writes its ticks in the unit in which the later end reads best."""
    scale, unit = unit_of_time(max(axis.get_view_interval()))
    if scale != 1.0:
        axis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{scale * seconds:.10g}"))
    axis.set_label_text(f"{name} ({unit})")


DAY_S, HOUR_S = 86400.0, 3600.0


def hours_or_days(seconds: float) -> tuple[str, float]:
    """Days, or hours where all is shorter, with their seconds: a unit of axes over which long times are drawn."""
    return ("days", DAY_S) if seconds >= 2.0 * DAY_S else ("hours", HOUR_S)


STYLE_SHEET = Path(__file__).with_name("prism.mplstyle")

# Paul Tol's "muted" scheme (SRON/EPS/TN/09-002). A kind of work has its colour in every picture.
INDIGO, CYAN, TEAL, GREEN, OLIVE = "#332288", "#88CCEE", "#44AA99", "#117733", "#999933"
SAND, ROSE, WINE, PURPLE, GREY = "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB"

_COLOURS = {
    "compute": INDIGO,
    "optimizer": TEAL,
    "tp_comm": SAND,
    "all_gather": SAND,
    "cp_comm": OLIVE,
    "broadcast": OLIVE,
    "ep_comm": GREEN,
    "all_to_all": GREEN,
    "dp_comm": ROSE,
    "all_reduce": ROSE,
    "reduce_scatter": ROSE,
    "pp_comm": PURPLE,
    "p2p": PURPLE,
    "bubble": GREY,
    "waiting_for_stragglers": WINE,
    "useful": INDIGO,
    "stragglers": WINE,
    "slow_phases": PURPLE,
    "checkpoint": TEAL,
    "failure": ROSE,
    "rework": SAND,
    "restart": OLIVE,
    "planned_stops": CYAN,
    "stalls": "#444444",
    "step regime": "#777777",
}


def style() -> AbstractContextManager[None]:
    """Context in which figures have the looks of this package.

    Example:
        >>> with style():  # doctest: +SKIP
        ...     ax = plot_step_time(distribution)
    """
    from matplotlib import style as mpl_style

    return mpl_style.context(str(STYLE_SHEET))


def colour(kind: str) -> str:
    """Colour of a kind of work; of joined kinds ("gemm+memory") that of the first, grey if it has none."""
    first = kind.split("+", maxsplit=1)[0]
    own = KERNEL_CLASSES.named(first).colour if first in KERNEL_CLASSES else ""
    return own or _COLOURS.get(first, GREY)
