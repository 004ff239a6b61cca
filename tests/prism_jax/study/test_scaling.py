"""Scaling: marginal returns and changes in closed form, the size that stops paying, the size that meets a target."""

from dataclasses import fields, replace
from math import isnan

import pytest
from hypothesis import given, strategies as st

from prism_jax.study.figures import JobFigures
from prism_jax.study.scaling import size_rows, smallest_meeting, stop_size

ONE = replace(JobFigures(**{item.name: 1.0 for item in fields(JobFigures)}), target_prob=0.0)
SIZES = (8, 16, 32, 64)


def rows_of(power: float):
    """Throughput that grows with a power of the number of GPUs."""
    own = [replace(ONE, n_devices=n, tokens_per_s=n**power, tokens_per_s_per_gpu=n ** (power - 1)) for n in SIZES]
    return size_rows(SIZES, [({}, one, "") for one in own])


@given(st.floats(0.05, 1.2))
def test_the_marginal_return_of_a_power_law_is_its_power(power: float) -> None:
    first, *rest = rows_of(power)
    assert isnan(first.marginal_return)
    assert [row.marginal_return for row in rest] == pytest.approx([power] * 3)
    assert rest[-1].per_gpu_change == pytest.approx(8.0 ** (power - 1) - 1.0)


def test_more_stops_paying_at_the_first_size_below_the_threshold() -> None:
    assert stop_size(rows_of(0.7), 0.8) == 16
    assert stop_size(rows_of(0.9), 0.8) is None


def test_impossible_sizes_are_stepped_over() -> None:
    own = replace(ONE, n_devices=8.0, tokens_per_s=8.0)
    rows = size_rows(
        (8, 12, 32), [((), own, ""), ({}, None, "no"), ({}, replace(own, n_devices=32.0, tokens_per_s=16.0), "")]
    )
    assert rows[1].figures is None
    assert rows[2].marginal_return == pytest.approx(0.5)


def test_the_smallest_size_that_likely_meets_the_target_and_fits() -> None:
    chances = [(0.2, 1.0), (0.6, 0.0), (0.7, 1.0), (0.9, 1.0)]
    own = [
        replace(ONE, n_devices=n, target_prob=prob, fits=fits) for n, (prob, fits) in zip(SIZES, chances, strict=True)
    ]
    found = smallest_meeting(size_rows(SIZES, [({}, one, "") for one in own]))
    assert found is not None
    assert found.n_devices == 32
