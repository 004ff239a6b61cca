"""The picture of a fit shows its shares and where measured values lie among replicated ones."""

import numpy as np
import pytest
from matplotlib.text import Text

from inference.engine.diagnostics import Checks
from prism_jax.core.picture import figure_bytes
from prism_jax.fits.picture import plot_fit, plot_replicated, plot_shares

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


def test_bars_are_the_shares_first_on_top():
    ax = plot_shares(SHARES)
    widths = [bar.get_width() for bar in ax.patches]  # type: ignore[attr-defined]
    assert widths == list(SHARES.values())[::-1]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(SHARES)[::-1]
    assert {"62.0%", "30.0%", "8.0%"} <= {text.get_text() for text in ax.texts}


def test_measured_values_are_points_in_order_and_the_axis_says_what_they_are():
    checked = checks()
    ax = plot_replicated(checked)
    points = next(line for line in ax.lines if line.get_marker() == ".")
    np.testing.assert_array_equal(points.get_xdata(), np.sort(checked.measured))
    np.testing.assert_allclose(np.asarray(points.get_ydata()), (np.arange(50) + 0.5) / 50)
    assert ax.get_xlabel() == "log seconds per GPU"


def test_the_line_is_the_median_of_replicated_values_by_rank():
    checked = checks(n_draw=200)
    line = next(line for line in plot_replicated(checked).lines if line.get_marker() != ".")
    np.testing.assert_allclose(np.asarray(line.get_xdata()), np.median(np.sort(checked.predicted, axis=1), axis=0))


@pytest.mark.parametrize("n", [1, 2])
def test_one_value_is_enough(n):
    figure_bytes(plot_fit(SUMMARY, checks(n=n, n_draw=3)), ".png")


@pytest.mark.parametrize(
    ("shares", "checked", "n_panel"),
    [(SHARES, checks(), 2), (SHARES, None, 1), ({}, checks(), 1)],
    ids=["both", "no checks", "no shares"],
)
def test_there_is_one_panel_for_each_thing_to_show(shares, checked, n_panel):
    figure = plot_fit({**SUMMARY, "variance_shares": shares}, checked)
    assert len(figure.axes) == n_panel
    assert figure_bytes(figure, ".png").startswith(b"\x89PNG")


def test_the_title_says_whether_the_fit_is_good():
    found = plot_fit({**SUMMARY, "verdict": {"ok": False, "sentence": "failed: the chains disagree"}}, checks())
    assert "fleet: failed fit" in {text.get_text() for text in found.findobj(Text)}  # type: ignore[attr-defined]


def test_a_fit_with_nothing_to_show_is_still_a_picture():
    figure = plot_fit({**SUMMARY, "variance_shares": {}}, None)
    assert figure_bytes(figure, ".svg").startswith(b"<?xml")
