"""Draws of spells follow the survival that is stated, given any age; walks keep their clock."""

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import kstest

from prism_jax.cloud import spot as spell_law
from prism_jax.cloud.availability import FittedSpells, SeveralZones
from prism_jax.cloud.spot import N_LAWS, Paths, draw, together
from prism_jax.core.errors import SpecError

N = 4000
KS = 2.2 / np.sqrt(N)  # false alarm 1e-4


def log_survival(law: np.ndarray, theta: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """log P(spell > seconds) of laws [...] with parameters [..., 2], [...]."""
    with np.errstate(divide="ignore", over="ignore"):
        log_s = np.log(seconds)
        out = np.where(law == spell_law.WEIBULL, -np.exp(np.minimum(spell_law._log_hazard(theta, log_s), 700.0)), 0.0)
        out = np.where(law == spell_law.LOG_NORMAL, log_ndtr((theta[..., 0] - log_s) / np.exp(theta[..., 1])), out)
        for number, (share, apart) in enumerate(spell_law.MIXTURES):
            low, high, inner = spell_law.components(theta, share, apart)
            both = share * ndtr((low - log_s) / inner) + (1.0 - share) * ndtr((high - log_s) / inner)
            out = np.where(law == 2 + number, np.log(both), out)
    return out


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


def test_wrong_zones_are_refused() -> None:
    with pytest.raises(SpecError):
        SeveralZones(())
    with pytest.raises(SpecError):
        SeveralZones((zone(),), 1.5)
    with pytest.raises(SpecError):
        FittedSpells("z", "", np.zeros((2, 3), int), np.zeros((2, 2, 2)), np.zeros((2, 3)), np.ones((3, 3)))
    with pytest.raises(SpecError):
        zone().now(True, -1.0)
