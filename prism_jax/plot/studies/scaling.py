"""A scaling study as a picture: throughput per GPU, where the step goes, and what tokens cost, over the number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ...report.types.studies.scaling import ScalingReport
from ...study.figures import Figures
from ...study.scaling import SizeRow
from ..figure import new_axes
from ..style import GREY, INDIGO, ROSE, SAND, TEAL, style

PARTS = (
    ("compute", ("compute_s",), INDIGO),
    ("exposed dp", ("exposed_dp_s",), ROSE),
    ("other exposed", ("exposed_tp_s", "exposed_cp_s", "exposed_ep_s", "exposed_pp_s"), SAND),
    ("bubble", ("bubble_s",), TEAL),
    ("waiting, stalls", ("waiting_s", "stalls_s"), GREY),
)  # of the mean step
LEAST_SHARE = 1e-3  # of the mean step, at any size: what is not to be seen is not in the legend


def plot_scaling(rows: Sequence[SizeRow], title: str, onset: float = np.nan) -> Figure:
    """Three panels; sizes that are impossible are left out.

    Args:
        onset: GPUs at which communication shows, drawn as a line where it is known.
    """
    known = [row for row in rows if row.figures]
    with style():
        figure = Figure(figsize=(14.0, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.01, ha="left")
        left, middle, right = figure.subplots(1, 3)
        plot_throughput(known, onset, ax=left).set_title("Throughput per GPU, 90 % model interval")
        plot_parts(known, ax=middle).set_title("Where the mean step goes")
        plot_tail(known, ax=right)
    return figure


def plot_throughput(rows: Sequence[SizeRow], onset: float = np.nan, *, ax: Axes | None = None) -> Axes:
    """Tokens per second and GPU of the median step."""
    ax = new_axes() if ax is None else ax
    n, value, low, high = (
        _column(rows, name) for name in ("n_devices", "tokens_per_s_per_gpu", "model_low", "model_high")
    )
    ax.plot(n, value, "o-", color=INDIGO, markersize=4)
    ax.fill_between(n, value / high, value / low, color=INDIGO, alpha=0.12, lw=0.0)
    if n.min() < onset < n.max():
        ax.axvline(onset, color=ROSE, ls="--", label=f"communication shows: {onset:,.0f}")
        ax.legend()
    ax.set_ylabel("tokens/s/GPU")
    ax.set_ylim(0.0)
    return _sizes(ax, n)


def plot_parts(rows: Sequence[SizeRow], *, ax: Axes | None = None) -> Axes:
    """Shares of the mean step, stacked; parts that no size has are left out."""
    ax = new_axes() if ax is None else ax
    n, mean_s = _column(rows, "n_devices"), _column(rows, "mean_s")
    shares = {part: sum((_column(rows, name) for name in names), np.zeros(len(n))) / mean_s for part, names, _ in PARTS}
    drawn = [(part, colour) for part, _, colour in PARTS if shares[part].max() >= LEAST_SHARE]
    ax.stackplot(
        n,
        [shares[part] for part, _ in drawn],
        labels=[part for part, _ in drawn],
        colors=[colour for _, colour in drawn],
        alpha=0.85,
    )
    ax.set_ylabel("share of the mean step")
    ax.set_ylim(0.0, 1.0)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=3)
    return _sizes(ax, n)


def plot_tail(rows: Sequence[SizeRow], *, ax: Axes | None = None) -> Axes:
    """Energy per token where power is known, else p95 over p50."""
    ax = new_axes() if ax is None else ax
    n, joules = _column(rows, "n_devices"), _column(rows, "joules_per_token")
    if np.isfinite(joules).all():
        ax.plot(n, joules, "o-", color=TEAL, markersize=4)
        ax.set_ylabel("GPU energy per token (J)")
        ax.set_title("Energy")
        ax.set_ylim(0.0)
    else:
        ax.plot(n, _column(rows, "p95_s") / _column(rows, "p50_s"), "o-", color=TEAL, markersize=4)
        ax.set_ylabel("p95 / p50")
        ax.set_title("Tail")
    return _sizes(ax, n)


def _column(rows: Sequence[SizeRow], name: str) -> np.ndarray:
    return np.array([getattr(row.figures, name) for row in rows if isinstance(row.figures, Figures)])


def _sizes(ax: Axes, n: np.ndarray) -> Axes:
    ax.set_xscale("log", base=2)
    ax.set_xticks(n, [f"{int(count):,}" for count in n], rotation=45)
    ax.set_xlabel("GPUs")
    return ax


def draw(report: ScalingReport) -> Figure:
    """Throughput, where the step goes, energy and money over the number of GPUs."""
    return plot_scaling(report.parts, f"{report.job}: {report.mode} scaling", report.onset_step)
