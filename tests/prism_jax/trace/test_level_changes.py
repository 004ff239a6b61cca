"""Changes of level: planted ones are named, steady logs have none."""

import numpy as np
import pytest

from prism_jax.trace.level_changes import level_changes, level_note, levels_note, two_levels, two_levels_note


def series(levels: list[tuple[int, float]], seed: int = 0, sd: float = 0.01) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([level * np.exp(sd * rng.standard_normal(n)) for n, level in levels])


def test_a_planted_change_is_named_with_both_levels() -> None:
    (found,) = level_changes(series([(200, 0.6), (200, 0.72)]), np.arange(100, 500))
    assert found.step == pytest.approx(300, abs=2)
    assert (found.before_s, found.after_s) == pytest.approx((0.6, 0.72), rel=0.01)
    note = level_note([found])
    assert f"changes at step {found.step} from 6" in note
    assert " ms to 7" in note
    assert "`prism-jax watch`" in note


def test_many_changes_are_counted() -> None:
    found = level_changes(series([(100, level) for level in (1.0, 1.3, 1.0, 1.4, 1.0, 1.2)]))
    assert len(found) == 5
    assert " and 2 more" in level_note(found)


@pytest.mark.parametrize("seed", range(8))
def test_steady_steps_have_one_level(seed: int) -> None:
    assert level_note(level_changes(series([(400, 2.0)], seed, sd=0.03))) == ""


@pytest.mark.parametrize("step_s", [[], [1.0], [1.0, 0.0, 2.0], [float("nan")] * 50])
def test_what_cannot_be_told_is_no_change(step_s: list[float]) -> None:
    assert level_changes(step_s) == []


def in_turns(rng: np.random.Generator, n: int, share: float, ratio: float, sd: float) -> np.ndarray:
    return 0.4 * np.exp(sd * rng.standard_normal(n)) * np.where(rng.random(n) < share, ratio, 1.0)


def correlated(rng: np.random.Generator, n: int, rho: float = 0.9) -> np.ndarray:
    noise = rng.standard_normal(n) * np.sqrt(1.0 - rho**2)
    noise[0] /= np.sqrt(1.0 - rho**2)
    for at in range(1, n):
        noise[at] += rho * noise[at - 1]
    return np.exp(0.02 * noise)


ONE_LEVEL = {
    "normal": lambda rng, n: np.exp(0.02 * rng.standard_normal(n)),
    "gamma": lambda rng, n: rng.gamma(100.0, 0.01, n),
    "one-sided": lambda rng, n: 1.0 + 0.05 * rng.exponential(size=n),
    "uniform": lambda rng, n: 1.0 + 0.1 * rng.random(n),
    "student": lambda rng, n: np.exp(0.02 * rng.standard_t(3, n)),
    "stalls": lambda rng, n: in_turns(rng, n, 0.02, 3.0, 0.02),
    "correlated": correlated,
}
N_SERIES, FALSE_ALARMS = (
    200,
    0.02,
)  # 0.5% in all; a law by itself up to 2% of 200: binomial, one-sided at 1e-3 for a rate of 0.5%


@pytest.mark.parametrize("n", [60, 200, 1000])
def test_two_levels_are_seldom_told_of_steps_at_one(n: int) -> None:
    rng = np.random.default_rng(n)
    told = {name: sum(two_levels(law(rng, n)) is not None for _ in range(N_SERIES)) for name, law in ONE_LEVEL.items()}
    assert max(told.values()) <= FALSE_ALARMS * N_SERIES, told
    assert sum(told.values()) <= 0.005 * N_SERIES * len(ONE_LEVEL), told


@pytest.mark.parametrize(
    ("n", "share", "ratio"), [(100, 0.3, 1.2), (200, 0.3, 1.15), (1000, 0.15, 1.12), (400, 0.6, 1.15)]
)
def test_planted_levels_are_found_with_their_share(n: int, share: float, ratio: float) -> None:
    rng = np.random.default_rng(5)
    found = [two_levels(in_turns(rng, n, share, ratio, 0.02)) for _ in range(50)]
    told = [one for one in found if one is not None]
    assert len(told) >= 48
    assert np.median([one.high_s / one.low_s for one in told]) == pytest.approx(ratio, rel=0.01)
    assert np.median([one.share for one in told]) == pytest.approx(share, abs=0.03)
    assert two_levels_note(told[0]).startswith("the steps have two levels, ")


def test_order_and_scale_change_nothing() -> None:
    steps = in_turns(np.random.default_rng(2), 200, 0.4, 1.2, 0.02)
    first, second = two_levels(steps), two_levels(7.0 * np.sort(steps))
    assert first is not None
    assert second is not None
    assert second == pytest.approx((7.0 * first.low_s, 7.0 * first.high_s, first.share))


@pytest.mark.parametrize("step_s", [[1.0, 2.0] * 20, [1.0, 1.1] * 100, [1.0] * 100, [1.0, 0.0] * 50])
def test_few_steps_and_ticks_of_a_clock_are_no_levels(step_s: list[float]) -> None:
    assert two_levels_note(two_levels(step_s)) == ""


def test_levels_in_turns_are_told_as_such_and_phases_as_phases() -> None:
    turns = in_turns(np.random.default_rng(0), 400, 0.3, 1.25, 0.02)
    assert "the steps have two levels, " in levels_note(turns)
    assert "the level of the steps changes at step 20" in levels_note(series([(200, 0.4), (200, 0.5)]))
    assert levels_note(series([(400, 0.4)])) == ""
