"""What `prism-jax calibrate` prints says what the object holds, whatever that is."""

from dataclasses import replace
from typing import Any

import pytest

from prism_jax.calibration.calibration import KNOBS
from prism_jax.core.page import Facts, Table
from prism_jax.validation.calibration_report import MOST_RUNS, WORDS, SiteReport
from prism_jax.validation.picture import MOST_DRAWN


def report(n_run: int = 3, **moved: tuple[float, float, float]) -> SiteReport:
    """A report with `n_run` runs; `moved`: knob -> before, after, shift."""
    still = {"before": 1.0, "after": 1.0, "p5": 0.9, "p95": 1.1, "shift": 0.0}
    corrections = {knob: dict(still) for knob in KNOBS}
    for knob, (before, after, shift) in moved.items():
        corrections[knob] = {"before": before, "after": after, "p5": 0.9 * after, "p95": 1.1 * after, "shift": shift}
    run = {"measured_s": 12.0, "before_s": 10.0, "after_s": 11.9, "error_before": -1 / 6, "error_after": -0.008}
    score = {"median_ape": 0.1, "mape": 0.1, "bias": 0.1, "largest": 0.1}
    found: dict[str, Any] = {
        "schema": SiteReport.schema(),
        "generation": "hopper",
        "device": "",
        "framework": "",
        "n_run": n_run,
        "dropped": {"x": "no preset of device Abacus"},
        "runs": [{"id": f"run {i}", **run, "error_left_out": 0.01 * i} for i in range(n_run)],
        "error": {"before": score, "after": score, "leave_one_out": score},
        "curve": [{"n_run": n, "n_choice": 1, "median_ape": 0.2 / (n + 1)} for n in range(n_run)],
        "corrections": corrections,
        "site_factor": {"median": 1.05, "p5": 0.98, "p95": 1.13},
        "band": {"before": {"p5": -0.3, "p95": 0.5}, "after": {"p5": -0.1, "p95": 0.12}},
        "elapsed_s": 3.0,
        "record": {},
    }
    return SiteReport.from_dict(found)


def corrections(made: SiteReport) -> dict[str, str]:
    return dict(next(one.facts for one in made.blocks() if isinstance(one, Facts) and "corrections" in one.title))


def test_what_moved_most_comes_first_in_words():
    made = report(network=(0.5, 0.65, 1.2), host=(1.0, 1.2, -2.0), overlap_window=(0.4, 0.6, 0.5), gemm=(1.0, 1.2, 0.1))
    assert list(corrections(made).items()) == [
        ("starting kernels on the host", "20% slower (8% slower to 32% slower)"),
        ("network transfers", "30% slower (17% slower to 43% slower)"),
        ("compute that hides data-parallel communication", "60% instead of 40% (54% to 66%)"),
        ("common factor of all", "5% slower (2% faster to 13% slower)"),  # matrix products hardly moved
    ]
    assert made.card().facts["largest change"].startswith("starting kernels on the host: 20% slower")


def test_large_factors_are_told_as_such():
    made = report(step_s=(1e-3, 2.6e-3, 1.0))
    assert corrections(made)["idle time per step"].startswith("2.6 times as long")


def test_rows_that_were_not_used_are_named():
    assert report().lines()[-1] == "note: x was not used: no preset of device Abacus"
    assert report().page().n_notes == 1


def test_the_verdict_is_the_error_of_runs_that_are_left_out():
    made = report()
    score = made.error.before
    better = replace(made, error=replace(made.error, leave_one_out=replace(score, median_ape=0.04)))
    assert better.card().verdict == "The median error falls from 10% to 4.0% on runs that are left out."
    assert better.card().tone == "good"
    assert "does NOT fall" in made.card().verdict
    assert "shipped calibration stands" in replace(better, shipped_stands=True).card().verdict
    assert replace(better, shipped_stands=True).card().tone == "unsure"


@pytest.mark.parametrize("n_run", [1, 2, 12, 100])
def test_any_number_of_runs_fits_a_terminal(n_run: int):
    made = report(n_run)
    table = made.blocks()[0]
    assert isinstance(table, Table)
    assert len(table.rows) == min(n_run, MOST_RUNS)
    assert ("more runs (--json lists them)" in str(made)) == (n_run > MOST_RUNS)
    left, right = made.figure().axes
    assert len(left.lines[0].get_xdata()) == min(n_run, MOST_DRAWN)
    assert len(right.lines[0].get_xdata()) == n_run


def test_runs_without_error_have_a_curve_too():
    made = report()
    flat = tuple(replace(point, median_ape=0.0) for point in made.curve)
    assert replace(made, curve=flat).lines()


def test_there_are_words_for_every_knob():
    assert set(WORDS) | {"overlap_window"} == set(KNOBS)
