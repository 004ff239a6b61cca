"""Rows beside the best: ratios, ties within their error, units of unlike jobs."""

import csv
import io
from dataclasses import fields, replace

import pytest

from prism_jax.study.figures import JobFigures
from prism_jax.study.table import study_table

ONE = replace(JobFigures(**{item.name: 1.0 for item in fields(JobFigures)}), tokens_per_step=1e6, n_devices=8.0)


def table(*figures: JobFigures | None):
    settings = [{"plan.tp": str(k)} for k in range(len(figures))]
    return study_table(["plan.tp"], settings, figures, ["" if own else "no" for own in figures], "p95", "s")


def test_the_least_value_is_the_best_and_near_ones_are_tied() -> None:
    rows = table(
        replace(ONE, value=2.0, value_error=0.01),
        replace(ONE, value=1.0, value_error=0.01),
        None,
        replace(ONE, value=1.02, value_error=0.01),
    ).rows
    assert [row.is_best for row in rows] == [False, True, False, False]
    assert [row.is_tied for row in rows] == [False, False, False, True]
    assert rows[0].relative == pytest.approx(2.0)
    assert rows[0].relative_error == pytest.approx(2.0 * (0.005**2 + 0.01**2) ** 0.5)


def test_jobs_that_do_not_fit_are_not_the_best_unless_none_fits() -> None:
    big, small = replace(ONE, value=1.0, fits=0.0), replace(ONE, value=2.0)
    assert table(big, small).rows[1].is_best
    assert table(big, replace(small, fits=0.0)).rows[0].is_best


def test_unlike_sizes_are_compared_by_gpu_hours() -> None:
    found = table(replace(ONE, value=3600.0), replace(ONE, value=1900.0, n_devices=16.0))
    assert found.unit == "GPU-hours"
    assert [row.is_best for row in found.rows] == [True, False]
    assert found.rows[1].relative == pytest.approx(1900.0 * 2 / 3600.0)


def test_csv_and_frame_hold_every_figure() -> None:
    found = table(ONE, None)
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert (rows[0]["p95_s"], rows[1]["p95_s"], rows[1]["problem"]) == ("1.0", "", "no")
    assert list(found.to_frame().columns) == list(rows[0])
