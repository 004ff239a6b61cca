"""The picture of collectives shows measured bandwidth as points, curves with bands, and a panel per collective."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prism_jax.core.picture import figure_bytes
from prism_jax.fits.picture import MOST_CURVES, plot_bandwidth, plot_bandwidths, size_name

SUMMARY = {"model": "collectives", "verdict": {"ok": True}}
SIZES = 2.0 ** np.arange(3, 30)


@dataclass
class Curve:
    """What `Fit.curves` gives of one scale."""

    op: str = "all_reduce"
    n_gpus: int = 8
    n_nodes: int = 1
    fabric: str = ""
    measured_bytes: Any = field(default_factory=lambda: SIZES)
    measured_bus: Any = field(default_factory=lambda: 2e11 * SIZES / (SIZES + 2e6))
    n_bytes: Any = field(default_factory=lambda: SIZES)
    bus: Any = field(default_factory=lambda: np.outer([0.9, 1.0, 1.1], 2e11 * SIZES / (SIZES + 2e6)))


def test_measured_bandwidth_is_points_and_the_median_a_line() -> None:
    ax = plot_bandwidth([Curve()])
    points = next(line for line in ax.lines if line.get_marker() == ".")
    line = next(line for line in ax.lines if line.get_marker() != ".")
    np.testing.assert_allclose(np.asarray(points.get_ydata()), Curve().measured_bus / 1e9)
    np.testing.assert_allclose(np.asarray(line.get_ydata()), Curve().bus[1] / 1e9)
    assert ax.get_xscale() == "log"
    assert "GB/s" in ax.get_ylabel()
    assert line.get_label() == "8 GPUs"


def test_each_collective_has_a_panel_and_what_is_left_out_is_said() -> None:
    many = [Curve(n_gpus=2**k, n_nodes=max(1, 2 ** (k - 3))) for k in range(1, 3 + MOST_CURVES)]
    figure = plot_bandwidths([*many, Curve(op="all_gather"), Curve(op="all_gather", fabric="other")], SUMMARY)
    panels = [ax for ax in figure.axes if ax.get_title(loc="left") or ax.get_title()]
    assert len(panels) == 2
    titles = [ax.get_title(loc="left") or ax.get_title() for ax in panels]
    assert titles == ["all_reduce (2 more scales not shown)", "all_gather"]
    assert len(figure_bytes(figure, ".png")) > 10_000


def test_sizes_are_named_in_binary_units() -> None:
    assert [size_name(2.0**k) for k in (3, 15, 20, 33)] == ["8 B", "32 KiB", "1 MiB", "8 GiB"]
