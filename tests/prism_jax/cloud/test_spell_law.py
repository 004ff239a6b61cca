"""Draws of spells follow the survival that is stated, given any age; walks keep their clock."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from prism_jax.cloud.availability import FittedSpells, RecordedSpells, SeveralZones
from prism_jax.cloud.paths import Paths
from prism_jax.cloud.spot.price import PriceLaw, fit_price
from prism_jax.cloud.spot.spell_law import N_LAWS, draw, log_survival
from prism_jax.cloud.spot.together import together
from prism_jax.errors import DataError, SpecError

N = 4000
KS = 2.2 / np.sqrt(N)  # false alarm 1e-4


@pytest.mark.parametrize("law", range(N_LAWS))
@pytest.mark.parametrize("age_s", [0.0, 1800.0, 40_000.0])
def test_draws_follow_their_law_beyond_an_age(law: int, age_s: float) -> None:
    laws, theta = np.full(N, law), np.broadcast_to([8.2, 0.4], (N, 2))
    seconds = draw(laws, theta, age_s, np.random.default_rng(law))
    reached = np.exp(log_survival(laws, theta, np.full(N, max(age_s, 1e-9))))
    uniform = np.exp(log_survival(laws, theta, seconds)) / reached
    assert (seconds >= age_s).all()
    assert kstest(uniform, "uniform").statistic < KS


def zone(
    n_draw: int = 50, law: int = 1, up: float = 8.2, losses: tuple[float, float, float] = (0.0, 0.0, 1.0)
) -> FittedSpells:
    theta = np.broadcast_to(np.array([[up, 0.2], [7.5, 0.1]])[:, None], (2, n_draw, 2))
    return FittedSpells(
        "z", "stated", np.full((2, n_draw), law), theta, np.zeros((2, n_draw)), np.tile(losses, (n_draw, 1))
    )


def test_a_zone_is_up_for_its_share_of_the_time() -> None:
    """Log-normal spells of means m_u and m_d are up m_u / (m_u + m_d) of the time; 3.9 standard errors."""
    paths = zone().draw(1, 2000, 20 * 86_400.0, np.random.default_rng(0))
    ends = np.minimum(paths.until_s, 20 * 86_400.0)
    up_s = (np.diff(ends, axis=0, prepend=0.0) * (paths.n_up > 0)).sum(axis=0)
    mean_up, mean_down = np.exp(8.2 + np.exp(0.4) / 2), np.exp(7.5 + np.exp(0.2) / 2)
    share = up_s / (20 * 86_400.0)
    assert share.mean() == pytest.approx(mean_up / (mean_up + mean_down), abs=3.9 * share.std() / np.sqrt(2000) + 1e-3)


def test_what_is_known_of_now_is_kept() -> None:
    paths = zone().now(False, 900.0).draw(1, 500, 86_400.0, np.random.default_rng(0))
    assert (paths.n_up[0] == 0).all()
    up = zone().now(True, 36_000.0).draw(1, 500, 86_400.0, np.random.default_rng(0))
    fresh = zone().now(True, 0.0).draw(1, 500, 86_400.0, np.random.default_rng(0))
    assert np.median(up.until_s[0]) > 2.0 * np.median(fresh.until_s[0])  # hazard falls with age


def test_losses_take_what_they_are_said_to_take() -> None:
    one = zone(losses=(1.0, 0.0, 0.0)).now(True, 0.0).draw(16, 500, 86_400.0, np.random.default_rng(0))
    drops = np.diff(one.n_up, axis=0)
    assert set(np.unique(drops[drops < 0])) == {-1}
    every = zone(losses=(0.0, 0.0, 1.0)).now(True, 0.0).draw(16, 500, 86_400.0, np.random.default_rng(0))
    assert set(np.unique(every.n_up)) == {0, 16}


def test_the_same_generator_draws_the_same_worlds() -> None:
    one, other = (zone().draw(4, 100, 86_400.0, np.random.default_rng(5)) for _ in range(2))
    assert one == other


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


def test_a_job_moves_to_a_zone_that_is_up_and_pays_a_loss_for_it() -> None:
    first = Paths(np.array([[10.0], [40.0], [90.0]]), np.array([[1], [0], [1]]), np.ones((3, 1)), 1)
    second = Paths(np.array([[5.0], [20.0], [90.0]]), np.array([[0], [1], [0]]), np.full((3, 1), 2.0), 1)
    both = together([first, second], 90.0)
    piece = np.searchsorted(both.until_s[:, 0], np.array([1.0, 15.0, 30.0, 50.0]), side="right")
    assert both.n_up[piece, 0].tolist() == [1, 1, 0, 1]
    assert both.price[piece, 0].tolist() == [1.0, 2.0, 1.0, 1.0]
    length = np.diff(both.until_s[:, 0], prepend=0.0)
    assert ((both.n_up[:, 0] == 0) & (length == 0.0) & (both.until_s[:, 0] == 10.0)).any()


@pytest.mark.parametrize("shared", [0.0, 0.4, 1.0])
def test_zones_of_a_region_correlate_by_the_part_that_they_share(shared: float) -> None:
    several = SeveralZones((zone(), zone()), shared)
    share = _share_up(several.draw(1, 3000, 2 * 86_400.0, np.random.default_rng(0)))
    alone = _share_up(zone().draw(1, 3000, 2 * 86_400.0, np.random.default_rng(0)))
    expected = shared * alone + (1.0 - shared) * (1.0 - (1.0 - alone) ** 2)
    assert share == pytest.approx(expected, abs=0.02)


def _share_up(paths: Paths) -> float:
    ends = np.minimum(paths.until_s, 2 * 86_400.0)
    return float((np.diff(ends, axis=0, prepend=0.0) * (paths.n_up > 0)).sum(axis=0).mean() / (2 * 86_400.0))


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


def test_wrong_zones_are_refused() -> None:
    with pytest.raises(SpecError):
        SeveralZones(())
    with pytest.raises(SpecError):
        SeveralZones((zone(),), 1.5)
    with pytest.raises(SpecError):
        FittedSpells("z", "", np.zeros((2, 3), int), np.zeros((2, 2, 2)), np.zeros((2, 3)), np.ones((3, 3)))
    with pytest.raises(SpecError):
        zone().now(True, -1.0)
