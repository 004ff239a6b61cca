"""Spot prices and traces that experiments replay: laws that were put in are found, traces are replayed from any moment."""

import numpy as np
import pytest

from experiments.cloud.spot.price_fit import fit_price
from experiments.cloud.spot.recorded_spells import RecordedSpells
from prism_jax.cloud.spot import PriceLaw
from prism_jax.core.errors import DataError


def test_a_price_comes_back_as_it_was_made() -> None:
    law = PriceLaw(sd=0.2, return_per_s=1 / 86_400.0, jumps_per_s=0.0, jump_sd=0.0)
    t_s = np.arange(1.0, 4001.0) * 3600.0
    found = fit_price(t_s, 3.0 * law.path(t_s[:, None], np.random.default_rng(0))[:, 0])
    assert found.sd == pytest.approx(0.2, rel=0.25)
    assert found.return_per_s == pytest.approx(1 / 86_400.0, rel=0.3)


def test_a_short_record_shows_no_return_to_a_mean() -> None:
    """Of twelve months that rise, the next three may go on rising."""
    t_s = np.arange(12.0) * 30.0 * 86_400.0
    law = fit_price(t_s, np.exp(0.05 * np.arange(12)))
    later = law.path(np.array([[90 * 86_400.0], [91 * 86_400.0]]) * np.ones((2, 4000)), np.random.default_rng(0))[1]
    assert np.median(later) == pytest.approx(1.0, abs=0.01)
    assert np.quantile(later, 0.95) > np.exp(0.1)


def test_a_price_that_stood_still_may_jump() -> None:
    law = fit_price(np.arange(12.0) * 30.0 * 86_400.0, np.ones(12))
    later = law.path(np.array([[90 * 86_400.0], [91 * 86_400.0]]) * np.ones((2, 4000)), np.random.default_rng(0))[1]
    moved = np.abs(np.log(later)) > 0.01
    assert moved.mean() == pytest.approx(1.0 - np.exp(-3.0 / 11.0), abs=0.05)  # one jump in eleven months


def test_jumps_are_told_from_the_rest() -> None:
    t_s = np.arange(1.0, 401.0) * 3600.0
    price = np.exp(0.01 * np.random.default_rng(0).standard_normal(400) + np.where(np.arange(400) % 100 < 50, 0.0, 0.5))
    found = fit_price(t_s, price)
    assert found.jumps_per_s == pytest.approx((7.0 + 1.0) / (399 * 3600.0))
    assert found.jump_sd == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize(
    ("t_s", "price"),
    [
        ([1.0, 2.0], [1.0, 1.0]),
        (range(9), [1.0] * 8 + [-1.0]),
        ([0.0] * 9, [1.0] * 9),
        (range(9), [1.0] * 8 + [np.nan]),
    ],
)
def test_prices_that_are_none_are_refused(t_s: list[float], price: list[float]) -> None:
    with pytest.raises(DataError):
        fit_price(np.array(t_s, dtype=float), np.array(price))


def test_a_trace_is_replayed_from_any_moment_and_around_its_end() -> None:
    trace = RecordedSpells("t", "made up", np.array([10.0, 30.0, 60.0]), np.array([2, 0, 1]), 2)
    paths = trace.beginning_at(np.array([5.0, 40.0]), 2, 60.0)
    grid = np.arange(0.5, 60.0)
    for world, start in enumerate((5.0, 40.0)):
        piece = np.searchsorted(paths.until_s[:, world], grid, side="right")
        at = (grid + start) % 60.0
        expected = np.where(at < 10.0, 2, np.where(at < 30.0, 0, 1))
        assert (paths.n_up[np.minimum(piece, len(paths.n_up) - 1), world] == expected).all()
    with pytest.raises(DataError, match="only 2 were asked for"):
        trace.beginning_at(np.array([0.0]), 3, 60.0)
    with pytest.raises(DataError, match="rise"):
        RecordedSpells("t", "", np.array([10.0, 5.0]), np.array([1, 0]), 1)
