"""The picture of accuracy shows every scored row once, where it belongs."""

import numpy as np
from matplotlib.colors import to_hex

from prism_jax.core.picture import figure_bytes
from prism_jax.validation.picture import (
    COLOURS,
    OTHERS,
    groups,
    palette,
    plot_accuracy,
    plot_errors,
    plot_predicted,
    short,
)
from prism_jax.validation.score import RowResult


def row(number: int, source: str, error: float = 0.1, defect: str = "") -> RowResult:
    measured = 0.5 * 1.3**number
    return RowResult(f"r{number}", source, measured, measured * (1.0 + error), error, defect=defect)


ROWS = [row(i, f"source {i % 12}", 0.02 * i - 0.2) for i in range(36)]


def points(ax: object) -> np.ndarray:
    lines = [line for line in ax.lines if line.get_marker() == "."]  # pyright: ignore[reportAttributeAccessIssue]
    return np.concatenate([np.asarray(line.get_xydata()) for line in lines])


def test_every_row_is_a_point():
    shown = points(plot_predicted(ROWS, groups(ROWS)))
    expected = np.array([(one.measured_s, one.predicted_s) for one in ROWS])
    assert np.allclose(np.sort(shown, axis=0), np.sort(expected, axis=0))


def test_large_sources_have_a_colour_of_their_own_and_the_others_are_grey():
    rows = [*ROWS, *(row(i, "source 11") for i in range(40, 44))]
    names = groups(rows)
    assert names["source 11"] == "source 11"
    assert list(names.values()).count(OTHERS) == 12 - len(COLOURS)
    colours = palette(names)
    assert len(set(colours.values())) == len(COLOURS) + 1


def test_share_of_rows_is_read_off_the_thick_line():
    ax = plot_errors(ROWS, groups(ROWS))
    thick = [
        line for line in ax.lines if to_hex(line.get_color()) == "#000000" and len(np.asarray(line.get_xdata())) > 1
    ]
    x, y = np.asarray(thick[0].get_xydata()).T
    errors = np.abs([one.error or 0.0 for one in ROWS])
    for limit in (0.05, 0.1, 0.25):
        assert y[x <= limit][-1] == np.mean(errors <= limit)


def test_rows_with_a_defect_or_without_a_prediction_are_not_shown():
    more = [*ROWS, row(3, "bad", 9.0, "typo"), RowResult("x", "bad", 1.0, unsupported="no device")]
    axes = plot_accuracy(more).axes
    assert len(points(axes[0])) == len(ROWS)


def test_pictures_of_nothing_and_of_much_are_pictures():
    for rows in ([], ROWS[:1], ROWS):
        assert figure_bytes(plot_accuracy(rows), "png").startswith(b"\x89PNG")


def test_names_are_short():
    assert short("huggingface/nanotron (a playbook, via somebody)") == "huggingface/nanotron"
    assert len(short("x" * 80)) == 30
