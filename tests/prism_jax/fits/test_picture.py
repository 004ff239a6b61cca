"""Pictures of fits."""

import numpy as np
import pytest
from matplotlib.text import Text

from inference.engine.diagnostics import Checks
from prism_jax.core.picture import figure_bytes
from prism_jax.fits.curves import MOST_CURVES, MOST_SIZES, MOST_VALUES, bandwidth_curves, replicated_values
from prism_jax.fits.picture import plot_bandwidth, plot_bandwidths, plot_fit, plot_replicated, plot_shares, size_name
from prism_jax.fits.report import CollectiveCurve, ReplicatedValues

SHARES = {"gpu": 0.62, "node": 0.3, "run": 0.08}
SUMMARY = {
    "model": "fleet",
    "variance_of": "log time",
    "variance_shares": SHARES,
    "verdict": {"ok": True, "sentence": "good: largest r-hat 1.002"},
}


def checks(n: int = 50, n_draw: int = 300) -> Checks:
    rng = np.random.default_rng(0)
    return Checks(rng.standard_normal(n), rng.standard_normal((n_draw, n)), "log seconds per GPU")


def values(checked: Checks) -> ReplicatedValues:
    """All of them, as a picture takes them."""
    return replicated_values(checked, len(checked.measured))


def test_bars_are_the_shares_first_on_top():
    ax = plot_shares(SHARES)
    widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]
    assert widths == list(SHARES.values())[::-1]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(SHARES)[::-1]
    assert {"62.0%", "30.0%", "8.0%"} <= {text.get_text() for text in ax.texts}


def test_a_share_that_is_known_as_a_range_is_drawn_and_written_as_one():
    known = {"gpu": {"median": 0.62, "p5": 0.55, "p95": 0.69}, "run": {"median": 0.08, "p5": 0.07, "p95": 0.09}}
    ax = plot_shares(SHARES, intervals=known)
    assert {"55 to 69%", "30.0%", "8.0%"} == {text.get_text() for text in ax.texts}
    (line,) = ax.lines
    assert list(np.asarray(line.get_xdata())) == [0.55, 0.69]


def test_measured_values_are_points_in_order_and_the_axis_says_what_they_are():
    checked = checks()
    ax = plot_replicated(values(checked))
    points = next(line for line in ax.lines if line.get_marker() == ".")
    np.testing.assert_allclose(np.asarray(points.get_xdata()), np.sort(checked.measured), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(points.get_ydata()), (np.arange(50) + 0.5) / 50)
    assert ax.get_xlabel() == "log seconds per GPU"


def test_the_line_is_the_median_of_replicated_values_by_rank():
    checked = checks(n_draw=200)
    line = next(line for line in plot_replicated(values(checked)).lines if line.get_marker() != ".")
    np.testing.assert_allclose(
        np.asarray(line.get_xdata()), np.median(np.sort(checked.predicted, axis=1), axis=0), rtol=1e-6
    )


@pytest.mark.parametrize("n", [1, 2])
def test_one_value_is_enough(n):
    figure_bytes(plot_fit(SUMMARY, values(checks(n=n, n_draw=3))), ".png")


@pytest.mark.parametrize(
    ("shares", "replicated", "n_panel"),
    [(SHARES, values(checks()), 2), (SHARES, None, 1), ({}, values(checks()), 1)],
    ids=["both", "no checks", "no shares"],
)
def test_there_is_one_panel_for_each_thing_to_show(shares, replicated, n_panel):
    figure = plot_fit({**SUMMARY, "variance_shares": shares}, replicated)
    assert len(figure.axes) == n_panel
    assert figure_bytes(figure, ".png").startswith(b"\x89PNG")


def test_the_title_says_whether_the_fit_is_good():
    found = plot_fit({**SUMMARY, "verdict": {"ok": False, "sentence": "failed: the chains disagree"}}, values(checks()))
    assert "fleet: failed fit" in {text.get_text() for text in found.findobj(Text)}  # type: ignore[attr-defined]


def test_a_fit_with_nothing_to_show_is_still_a_picture():
    figure = plot_fit({**SUMMARY, "variance_shares": {}}, None)
    assert figure_bytes(figure, ".svg").startswith(b"<?xml")


def test_of_many_values_some_are_kept_with_the_first_and_the_last():
    checked = checks(n=1000)
    kept, whole = replicated_values(checked), values(checked)
    assert len(kept.level) == MOST_VALUES
    for name in ("measured", "low", "middle", "high"):
        few, all_of_them = np.array(getattr(kept, name)), np.array(getattr(whole, name))
        assert set(few) <= set(all_of_them)
        assert (few[0], few[-1]) == (all_of_them[0], all_of_them[-1])


# --- Bandwidth -------------------------------------------------------------------------------------------------------
# The picture of collectives shows measured bandwidth as points, curves with bands, and a panel per collective.


BANDWIDTH_SUMMARY = {"model": "collectives", "verdict": {"ok": True, "sentence": "good: fine"}}
SIZES = 2.0 ** np.arange(3, 30)


BUS = 2e11 * SIZES / (SIZES + 2e6)


def curve(op: str = "all_reduce", n_gpus: int = 8, n_nodes: int = 1, fabric: str = "") -> CollectiveCurve:
    """A curve whose measured points lie on its median."""
    sizes, low, middle, high = (tuple(map(float, line)) for line in (SIZES, 0.9 * BUS, BUS, 1.1 * BUS))
    return CollectiveCurve(op, n_gpus, n_nodes, fabric, sizes, middle, sizes, low, middle, high)


def test_measured_bandwidth_is_points_and_the_median_a_line() -> None:
    ax = plot_bandwidth([curve()])
    points = next(line for line in ax.lines if line.get_marker() == ".")
    line = next(line for line in ax.lines if line.get_marker() != ".")
    np.testing.assert_allclose(np.asarray(points.get_ydata()), np.asarray(curve().measured_bus) / 1e9)
    np.testing.assert_allclose(np.asarray(line.get_ydata()), np.asarray(curve().middle) / 1e9)
    assert ax.get_xscale() == "log"
    assert "GB/s" in ax.get_ylabel()
    assert line.get_label() == "8 GPUs"


def test_each_collective_has_a_panel_and_what_is_left_out_is_said() -> None:
    many = [curve(n_gpus=2**k, n_nodes=max(1, 2 ** (k - 3))) for k in range(1, 3 + MOST_CURVES)]
    figure = plot_bandwidths([*many, curve(op="all_gather"), curve(op="all_gather", fabric="other")], BANDWIDTH_SUMMARY)
    panels = [ax for ax in figure.axes if ax.get_title(loc="left") or ax.get_title()]
    assert len(panels) == 2
    titles = [ax.get_title(loc="left") or ax.get_title() for ax in panels]
    assert titles == ["all_reduce (2 more scales not shown)", "all_gather"]
    assert len(figure_bytes(figure, ".png")) > 10_000


def test_sizes_are_named_in_binary_units() -> None:
    assert [size_name(2.0**k) for k in (3, 15, 20, 33)] == ["8 B", "32 KiB", "1 MiB", "8 GiB"]


def test_kept_curves_are_few_and_drawn_as_the_fit_itself() -> None:
    many = [curve(n_gpus=8 * n) for n in range(1, 20)]
    kept = bandwidth_curves(many)
    assert [one.n_gpus for one in (kept[0], kept[-1])] == [8, 152]
    assert len(kept) == MOST_CURVES
    assert len(kept[0].n_bytes) == MOST_SIZES
    shown, own = plot_bandwidth(kept[:1]), plot_bandwidth(many[:1])
    for ax in (shown, own):
        assert ax.get_xlim()[0] < SIZES[0]
    np.testing.assert_allclose(kept[0].bus[1], np.interp(kept[0].n_bytes, SIZES, many[0].bus[1]), rtol=1e-6)
