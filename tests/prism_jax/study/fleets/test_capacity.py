"""Capacity: the closed form without doubt, and money that follows days."""

from dataclasses import fields

import numpy as np
import pytest

from prism_jax.study.capacity import Span, capacities
from prism_jax.study.figures import JobFigures

ONE = np.ones((1, 2))


def figures(mean_s: float, n_devices: float, watts: float = 500.0) -> JobFigures:
    """A step of a million tokens; nothing else is known."""
    known = {"mean_s": mean_s, "value": mean_s, "value_error": 0.0, "n_devices": n_devices, "tokens_per_step": 1e6}
    return JobFigures(**{item.name: known.get(item.name, np.nan) for item in fields(JobFigures)} | {"gpu_watts": watts})


def test_without_doubt_it_is_arithmetic() -> None:
    fleets = [figures(1.0, 8.0), figures(2.0, 2.0)]
    found = capacities(fleets, [0.5, 1.0], [2.0, 3.0], ONE, Span(tokens=86_400e6))
    first, second = found.fleets
    assert (first.days_p50, first.days_p95, second.days_p50) == pytest.approx((2.0, 2.0, 2.0))
    assert first.money_p50 == pytest.approx(8 * 2.0 * 48)
    assert first.energy_kwh_p50 == pytest.approx(0.5 * 8 * 48)
    assert found.prob_faster[0][1] == 0.5  # equal
    assert found.prob_cheaper[1][0] == 1.0


def test_days_give_tokens_at_a_price_that_is_known() -> None:
    factors = np.exp(0.1 * np.random.default_rng(0).normal(size=(100_000, 1)))
    made = capacities([figures(1.0, 8.0)], [1.0], [2.0], factors, Span(days=10.0)).fleets[0]
    assert made.tokens_p50 == pytest.approx(864e9, rel=2e-3)
    assert made.tokens_p95 == pytest.approx(864e9 * np.exp(-0.1 * 1.645), rel=3e-3)
    assert made.money_p50 == made.money_p95 == 8 * 2.0 * 240


def test_fleets_without_a_price_are_not_compared_by_money() -> None:
    found = capacities([figures(1.0, 8.0), figures(2.0, 8.0)], [1.0, 1.0], [2.0, np.nan], ONE, Span(days=1.0))
    assert found.prob_cheaper == found.prob_cheapest == ()
    assert found.prob_fastest == (1.0, 0.0)
