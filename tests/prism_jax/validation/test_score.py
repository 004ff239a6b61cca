"""Scores of predictions against measured runs, and their picture."""

from dataclasses import replace

import numpy as np
import pytest
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
from prism_jax.validation.score import RowResult, score, validation_of, with_baseline


def row(name: str, error: float | None, source: str = "S", **more: object) -> RowResult:
    given = RowResult(name, source, 1.0, None if error is None else 1.0 + error, error)
    return replace(given, unsupported="" if error is not None else "no such device", **more)  # pyright: ignore[reportArgumentType]


def test_figures_are_those_of_the_definition():
    found = score(
        [row("a", 0.1, inside=True), row("b", -0.3, inside=False), row("c", 0.2, inside=True), row("d", None)]
    )
    assert (found.n, found.n_unsupported, found.n_defect) == (3, 1, 0)
    assert found.median_ape == pytest.approx(0.2)
    assert found.mape == pytest.approx(0.2)
    assert found.bias == pytest.approx(0.0, abs=1e-12)
    assert found.p90_ape == pytest.approx(0.28)  # linear between 0.2 and 0.3
    assert found.coverage_90 == pytest.approx(2 / 3)


def test_rows_with_a_defect_are_counted_but_not_scored():
    rows = [row("a", 0.1), row("b", 5.0, defect="broken fabric"), row("c", None, defect="broken fabric")]
    outcome = validation_of(rows)
    assert (outcome.overall.n, outcome.overall.n_defect, outcome.overall.n_unsupported) == (1, 1, 1)
    assert outcome.overall.mape == pytest.approx(0.1)
    assert outcome.by_source["S"] == outcome.overall
    assert outcome.overall_with_defects.n == 2
    assert outcome.overall_with_defects.mape == pytest.approx(2.55)
    assert outcome.rows == tuple(rows)


def test_nothing_to_score_is_none_and_not_zero():
    found = score([row("a", None), row("b", 0.3, defect="typo")])
    assert (found.n, found.n_unsupported, found.n_defect) == (0, 1, 1)
    assert (found.mape, found.median_ape, found.bias, found.p90_ape, found.coverage_90) == (None,) * 5


def test_sources_keep_to_themselves():
    outcome = validation_of([row("a", 0.1, "X"), row("b", 0.3, "Y"), row("c", -0.5, "Y")])
    assert {name: one.n for name, one in outcome.by_source.items()} == {"X": 1, "Y": 2}
    assert outcome.by_source["Y"].bias == pytest.approx(-0.1)
    assert outcome.overall_baseline is None


def test_baseline_is_the_median_of_the_medians_of_other_groups():
    rows = [
        *(row(f"a{i}", 0.0, "A", group="A", mfu=0.5) for i in range(3)),
        row("b", 0.0, "B", group="B", mfu=0.4),
        *(row(f"c{i}", 0.0, "C", group="C", mfu=0.2) for i in range(5)),
    ]
    found = with_baseline(rows, ["hopper"] * len(rows))
    assert found[0].baseline_error == pytest.approx(0.5 / 0.3 - 1.0)  # of B and C
    assert found[3].baseline_error == pytest.approx(0.4 / 0.35 - 1.0)  # of A and C, whatever their size
    overall = validation_of(found).overall_baseline
    assert overall is not None
    assert overall.n == len(rows)
    assert overall.coverage_90 is None


def test_baseline_prefers_the_same_kind_of_device_and_skips_rows_with_a_defect():
    rows = [
        row("a", 0.0, "A", group="A", mfu=0.5),
        row("b", 0.0, "B", group="B", mfu=0.4),
        row("c", 0.0, "C", group="C", mfu=0.1),
        row("d", 0.0, "D", group="D", mfu=0.9, defect="typo"),
        row("e", None, "E"),
    ]
    found = with_baseline(rows, ["hopper", "hopper", "ampere", "hopper", ""])
    assert found[0].baseline_error == pytest.approx(0.5 / 0.4 - 1.0)
    assert found[2].baseline_error == pytest.approx(0.1 / 0.45 - 1.0)  # nobody else has its device
    assert found[4].baseline_error is None


def test_reason_is_the_defect_or_what_takes_longest():
    parts = {"compute": 3.0, "communication": 1.0, "host": 0.0, "bubble": 0.0}
    assert row("a", 0.1, parts_s=parts).reason == "compute 75%"
    assert row("a", 0.1, parts_s=parts, defect="typo").reason == "typo"
    assert row("a", None).reason == "no such device"


# --- The picture of accuracy shows every scored row once, where it belongs -------------------------------------------


def accuracy_row(number: int, source: str, error: float = 0.1, defect: str = "") -> RowResult:
    measured = 0.5 * 1.3**number
    return RowResult(f"r{number}", source, measured, measured * (1.0 + error), error, defect=defect)


ROWS = [accuracy_row(i, f"source {i % 12}", 0.02 * i - 0.2) for i in range(36)]


def points(ax: object) -> np.ndarray:
    lines = [line for line in ax.lines if line.get_marker() == "."]  # pyright: ignore[reportAttributeAccessIssue]
    return np.concatenate([np.asarray(line.get_xydata()) for line in lines])


def test_every_row_is_a_point():
    shown = points(plot_predicted(ROWS, groups(ROWS)))
    expected = np.array([(one.measured_s, one.predicted_s) for one in ROWS])
    assert np.allclose(np.sort(shown, axis=0), np.sort(expected, axis=0))


def test_large_sources_have_a_colour_of_their_own_and_the_others_are_grey():
    rows = [*ROWS, *(accuracy_row(i, "source 11") for i in range(40, 44))]
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
    more = [*ROWS, accuracy_row(3, "bad", 9.0, "typo"), RowResult("x", "bad", 1.0, unsupported="no device")]
    axes = plot_accuracy(more).axes
    assert len(points(axes[0])) == len(ROWS)


def test_pictures_of_nothing_and_of_much_are_pictures():
    for rows in ([], ROWS[:1], ROWS):
        assert figure_bytes(plot_accuracy(rows), "png").startswith(b"\x89PNG")


def test_names_are_short():
    assert short("huggingface/nanotron (a playbook, via somebody)") == "huggingface/nanotron"
    assert len(short("x" * 80)) == 30
