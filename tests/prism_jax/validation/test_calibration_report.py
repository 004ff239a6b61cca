"""What `prism-jax calibrate` prints says what the object holds, whatever that is."""

from dataclasses import replace
from typing import Any

import pytest

from prism_jax.calibration.calibration import KNOBS
from prism_jax.validation.calibration_report import MOST_RUNS, WORDS, SiteReport


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


def test_what_moved_most_comes_first_in_words():
    made = report(network=(0.5, 0.65, 1.2), host=(1.0, 1.2, -2.0), overlap_window=(0.4, 0.6, 0.5), gemm=(1.0, 1.2, 0.1))
    lines = made.lines()
    first = next(i for i, line in enumerate(lines) if line.startswith("largest corrections")) + 1
    assert lines[first].strip() == "starting kernels on the host: 20% slower (8% slower to 32% slower)"
    assert lines[first + 1].strip() == "network transfers: 30% slower (17% slower to 43% slower)"
    assert (
        lines[first + 2].strip()
        == "share of compute that hides data-parallel communication: 60% instead of 40% (54% to 66%)"
    )
    assert (
        lines[first + 3].strip() == "common factor of all components: 5% slower (2% faster to 13% slower)"
    )  # matrix products hardly moved


def test_large_factors_are_told_as_such():
    made = report(step_s=(1e-3, 2.6e-3, 1.0))
    assert any("idle time per step: 2.6 times as long" in line for line in made.lines())


def test_rows_that_were_not_used_are_named():
    assert "note: x was not used: no preset of device Abacus" in report().lines()


@pytest.mark.parametrize("n_run", [1, 2, 12, 100])
def test_any_number_of_runs_fits_a_terminal(n_run: int):
    lines = report(n_run).lines()
    assert max(map(len, lines)) <= 110
    assert not any(line != line.rstrip() for line in lines)
    assert sum(line.startswith("run ") for line in lines) == min(n_run, MOST_RUNS) + 1  # with the heading
    assert any("more runs; --json has them all" in line for line in lines) == (n_run > MOST_RUNS)


def test_runs_without_error_have_a_curve_too():
    made = report()
    flat = tuple(replace(point, median_ape=0.0) for point in made.curve)
    assert replace(made, curve=flat).lines()


def test_there_are_words_for_every_knob():
    assert set(WORDS) | {"overlap_window"} == set(KNOBS)
