"""Stalls: which steps, what share of the time, their period, who caused them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax import watch_steps
from prism_jax.trace.rank_times import RankTimes, slow_ranks
from prism_jax.trace.stalls import Stalls, stalls
from prism_jax.trace.step_log import StepLog


def log(n: int, at: dict[int, float], usual_s: float = 1.0, seed: int = 0, first: int = 1, every: int = 1) -> StepLog:
    step_s = usual_s * np.exp(0.01 * np.random.default_rng(seed).standard_normal(n))
    steps = first + every * np.arange(n)
    for step, seconds in at.items():
        step_s[np.flatnonzero(steps == step)] = seconds
    return StepLog("a.log", "a", steps, step_s, np.ones(n, np.int32))


def found(of: StepLog) -> Stalls:
    told = stalls(of.step, of.step_s, of.n_steps, of.ranks)
    assert told is not None
    return told


@settings(max_examples=40, deadline=None)
@given(period=st.integers(7, 90), size=st.floats(1.2, 100.0), shift=st.integers(0, 6), seed=st.integers(0, 99))
def test_period_steps_and_shares_of_regular_stalls(period: int, size: float, shift: int, seed: int):
    n = 400
    at = dict.fromkeys(range(shift + period, n + 1, period), size)
    of = log(n, at, seed=seed)
    told = found(of)
    (kind,) = told.kinds
    assert kind.steps == tuple(at)
    assert kind.period == period
    total_s = of.step_s.sum()
    assert told.time_share == pytest.approx(size * len(at) / total_s)
    assert told.lost_share == pytest.approx((size - 1.0) * len(at) / total_s, rel=0.1)


def test_two_kinds_of_stall_have_their_own_periods():
    saves = dict.fromkeys(range(100, 501, 100), 30.0)
    collections = dict.fromkeys(range(35, 501, 35), 2.0)
    told = found(log(500, saves | collections))
    assert [(kind.period, round(kind.typical_s)) for kind in told.kinds] == [(100, 30), (35, 2)]


def test_stalls_at_random_steps_have_no_period():
    told = found(log(300, {37: 10.0, 52: 10.0, 81: 10.0, 200: 10.0}))
    assert (told.kinds[0].period, told.kinds[0].steps) == (None, (37, 52, 81, 200))


def test_a_lasting_change_is_no_stall():
    step_s = np.where(np.arange(300) < 200, 1.0, 1.4) * np.exp(0.01 * np.random.default_rng(0).standard_normal(300))
    assert stalls(np.arange(300), step_s, np.ones(300, np.int32)) is None


def test_clean_logs_have_none():
    for of in (log(1000, {}, seed=seed) for seed in range(50)):
        assert stalls(of.step, of.step_s, of.n_steps, of.ranks) is None


def ranked(late: tuple[int, ...], at: tuple[int, ...], n: int = 60, n_rank: int = 16) -> StepLog:
    """Ranks that load data for 20 s in some steps, while the others wait for them."""
    rng = np.random.default_rng(0)
    step = 2.0 + 0.01 * rng.random((n, n_rank))
    data = 0.01 + 0.001 * rng.random((n, n_rank))
    for s in at:
        step[s - 1] += 20.0
        step[s - 1, list(late)] -= 20.0
        data[s - 1, list(late)] += 20.0
    entry, rank = np.repeat(np.arange(n), n_rank), np.tile(np.arange(n_rank), n)
    ranks = RankTimes(tuple(map(str, range(n_rank))), entry, rank, step.ravel(), {"data_time_s": data.ravel()})
    return StepLog("a.log", "a", np.arange(1, n + 1), step.max(axis=1), np.ones(n, np.int32), ranks=ranks)


def test_ranks_and_part_that_caused_a_stall_are_named():
    told = found(ranked((4, 5, 6), (17, 40)))
    (cause,) = told.kinds[0].causes
    assert (cause.part, cause.ranks, round(cause.seconds)) == ("data_time_s", "ranks 4-6", 20)
    text = " ".join(" ".join(watch_steps(ranked((4, 5, 6), (17, 40))).lines()).split())
    assert "ranks 4-6: data_time_s 20" in text
    assert "mean" in text


def test_ranks_are_chosen_with_their_steps():
    of = ranked((4, 5, 6), (17, 40))
    part = of.choose(np.arange(10, 50))
    assert part.ranks is not None
    assert len(part.ranks.entry) == 40 * 16
    told = found(part)
    assert told.kinds[0].causes[0].ranks == "ranks 4-6"


def test_a_rank_that_is_always_slow_is_named_and_clean_ones_are_not():
    rng = np.random.default_rng(1)
    n, n_rank = 50, 32
    for slow in (None, 13):
        seconds = np.exp(0.003 * rng.standard_normal(n_rank)) * np.exp(0.01 * rng.standard_normal((n, n_rank)))
        if slow is not None:
            seconds[:, slow] *= 1.05
        entry, rank = np.repeat(np.arange(n), n_rank), np.tile(np.arange(n_rank), n)
        named = slow_ranks(RankTimes(tuple(map(str, range(n_rank))), entry, rank, seconds.ravel(), {}))
        assert [one.rank for one in named] == ([] if slow is None else ["13"])


CASES = Path(__file__).parents[4] / "shared" / "data" / "cases"


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
def test_cases_of_stalls_that_people_asked_about():
    minute, collected, ranks = (
        watch_steps(CASES / name) for name in ("spikes/gc100_minute.csv", "spikes/gc50.csv", "xtuner/ranks_s3.csv")
    )
    assert minute.info.step_s.mean == pytest.approx(1.19, abs=0.01)
    assert minute.info.step_s.p50 == pytest.approx(0.60, abs=0.005)
    assert [report.info.stalls.kinds[0].period for report in (minute, collected)] == [100, 50]  # pyright: ignore
    kind = ranks.info.stalls.kinds[0]  # pyright: ignore[reportOptionalMemberAccess]
    assert kind.steps == (37, 52, 81)
    assert round(kind.typical_s) == 381
    assert (kind.causes[0].ranks, round(kind.causes[0].seconds)) == ("ranks 12-15", 332)
