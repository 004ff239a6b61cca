"""Search of shardings: evaluation against plain loops, lower bounds, and moves."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from prism_jax.sharding import assignment as evaluate
from prism_jax.sharding.assignment import NO_ROOM, loads, steps, values
from prism_jax.sharding.bounds import linear_bound, lower_bound
from prism_jax.sharding.local_search import descend
from prism_jax.sharding.search import nominal
from prism_jax.sharding.sharders import SHARDERS
from prism_jax.sharding.task import Exchange, StepRest, free
from tests.prism_jax.sharding.oracle import random_task, slow_memory, slow_step


@pytest.mark.parametrize("n_sample", [1, 3, 40])
@pytest.mark.parametrize("shared", [False, True])
def test_steps_of_a_batch_are_those_of_the_slow_evaluator(n_sample: int, shared: bool):
    for seed in range(4):
        task = random_task(9, 4, seed, n_sample, shared)
        codes = np.random.default_rng(seed).integers(task.n_ranks + 2 * shared, size=(9, 25))
        found = steps(task, codes)
        assert found.shape == (25, n_sample)
        for column in range(25):
            for sample in {0, n_sample - 1}:
                slow = slow_step(task, codes[:, column].tolist(), sample)
                assert found[column, sample] == pytest.approx(slow, rel=1e-9)


def test_memory_is_that_of_the_slow_evaluator():
    task = random_task(9, 4, 0, shared=True)
    codes = np.random.default_rng(0).integers(6, size=(9, 20))
    held = loads(task, codes).held_bytes
    for column in range(20):
        assert held[column] == pytest.approx(slow_memory(task, codes[:, column].tolist()), rel=1e-12)


def test_blocks_do_not_change_values(monkeypatch: pytest.MonkeyPatch):
    task = random_task(9, 4, 1, 16)
    codes = np.random.default_rng(1).integers(4, size=(9, 50))
    whole = values(task, codes, nominal)
    monkeypatch.setattr(evaluate, "MOST_NUMBERS", 700)
    assert np.allclose(values(task, codes, nominal), whole, rtol=1e-13)


def test_ranks_are_alike():
    task = random_task(12, 4, 2)
    codes = np.random.default_rng(2).integers(4, size=(12, 10))
    renamed = np.array([2, 0, 3, 1])[codes]
    assert np.allclose(steps(task, codes), steps(task, renamed), rtol=1e-12)


def test_what_does_not_fit_is_worse_than_all_that_fits_and_worse_the_less_it_fits():
    task = random_task(9, 4, 0)
    tight = replace(task, capacity_bytes=float(task.held_bytes[0].sum()) / 3)
    one, two = np.zeros(9, int), np.zeros(9, int)
    two[::2] = 1
    spread = np.arange(9) % 4
    found = values(tight, np.stack([one, two, spread], axis=1), nominal)
    assert found[0] > found[1] or found[1] < NO_ROOM
    assert found[0] > NO_ROOM
    assert (found[2] < NO_ROOM) == (max(slow_memory(tight, spread.tolist())) <= tight.capacity_bytes)


def test_ways_that_are_not_allowed_and_two_parts_on_one_rank_are_refused():
    task = random_task(4, 3, 0)
    pieces = replace(task.pieces, table=np.array([0, 1, 1, 2]), parts=np.array([1, 2, 2, 1]))
    task = replace(task, pieces=pieces)
    codes = np.array([[0, 1, 2, 0], [3, 1, 2, 0], [0, 1, 1, 0]]).T
    assert (values(task, codes, nominal) >= NO_ROOM).tolist() == [False, True, True]


# --- Bound -----------------------------------------------------------------------------------------------------------
# No assignment is below the lower bound, and where work is even and free of communication the bound is reached.


@pytest.mark.parametrize("shared", [False, True])
def test_every_assignment_is_above_the_bound(shared: bool):
    for seed in range(6):
        task = random_task(5, 3, seed, 4, shared)
        codes = np.array(list(product(range(3 + 2 * shared), repeat=5))).T
        assert (steps(task, codes) >= lower_bound([task]) * (1.0 - 1e-12)).all()
        plain = replace(task, seconds_s=task.seconds_s[..., :1])
        assert steps(plain, codes).min() >= linear_bound([plain]) * (1.0 - 1e-9)


def test_equal_tables_on_as_many_ranks_reach_it():
    task = random_task(4, 4, 0)
    alike = np.broadcast_to(task.seconds_s[..., :1, :], task.seconds_s.shape)
    task = replace(task, seconds_s=alike, rest=StepRest(Exchange(free)))
    assert steps(task, np.arange(4)[:, None])[0, 0] == pytest.approx(lower_bound([task])[0], rel=1e-12)


def test_a_long_table_decides_it():
    task = random_task(4, 4, 0)
    seconds = task.seconds_s.copy()
    seconds[:, :, :, 0] *= 1000.0
    task = replace(task, seconds_s=seconds, rest=StepRest(Exchange(free)))
    least = seconds[0, :, :, 0, 0].max(axis=1).sum()
    assert lower_bound([task])[0] == pytest.approx(least, rel=1e-12)


def test_finer_cuts_can_only_lower_it():
    task = random_task(6, 3, 1)
    double = replace(
        task,
        pieces=replace(task.pieces, table=np.repeat(np.arange(6), 2), parts=np.full(12, 2)),
        seconds_s=np.repeat(0.6 * task.seconds_s, 2, axis=3),
        sent_bytes=np.repeat(0.5 * task.sent_bytes, 2, axis=1),
        joint_bytes=np.repeat(0.5 * task.joint_bytes, 2, axis=1),
        held_bytes=np.repeat(0.5 * task.held_bytes, 2, axis=1),
        allowed=np.repeat(task.allowed, 2, axis=1),
    )
    assert lower_bound([task, double])[0] <= lower_bound([task])[0]


@pytest.mark.parametrize("shared", [False, True])
def test_a_cut_whose_cache_never_decides_is_compared_by_memory_alone(shared: bool):
    """Tasks leave such a resource out, so that those of one problem may have one or two."""
    both = random_task(5, 3, 2, 1, shared)
    one = replace(both, seconds_s=both.seconds_s[:, :, :1])
    assert lower_bound([both, one])[0] == lower_bound([one])[0]
    assert linear_bound([both, both]) >= linear_bound([both, one]) == linear_bound([one, one])
    codes = np.array(list(product(range(3 + 2 * shared), repeat=5))).T
    least = steps(both, codes).min()
    assert least >= lower_bound([both, one])[0] * (1.0 - 1e-12)
    assert least >= linear_bound([both, one]) * (1.0 - 1e-9)


# --- Local search ----------------------------------------------------------------------------------------------------
# Local search finds optima that exhaustion confirms, never worsens a start, and finds room where a start has none.


def _starts(task, rng, n_random=6):
    own = [SHARDERS.named(name).assign(task, rng) for name in SHARDERS.names]
    return np.stack([*own, *(rng.integers(task.n_ranks, size=len(task.pieces)) for _ in range(n_random))], axis=1)


def test_small_tasks_are_solved_to_half_a_percent():
    every = np.array(list(product(range(3), repeat=6))).T
    for seed in range(8):
        task, rng = random_task(6, 3, seed), np.random.default_rng(seed)
        ends = descend(task, _starts(task, rng), nominal, rng)
        best = values(task, np.stack([end.codes for end in ends], axis=1), nominal).min()
        assert best <= values(task, every, nominal).min() * 1.005


def test_rows_and_copies_are_found_where_they_help():
    task, rng = random_task(6, 3, 3, shared=True), np.random.default_rng(0)
    ends = descend(task, _starts(task, rng), nominal, rng)
    whole = descend(replace(task, allowed=random_task(6, 3, 3).allowed), _starts(task, rng), nominal, rng)
    assert ends[0].value < whole[0].value
    assert max(ends[0].codes) >= task.n_ranks


def test_no_start_becomes_worse_and_the_same_seed_gives_the_same_ends():
    task = random_task(20, 4, 5)
    starts = _starts(task, np.random.default_rng(1))
    first, again = (descend(task, starts, nominal, np.random.default_rng(2)) for _ in range(2))
    assert [end.codes.tolist() for end in first] == [end.codes.tolist() for end in again]
    assert first[-1].value <= values(task, starts, nominal).max() * 1.2
    assert first[0].value <= values(task, starts, nominal, 1e-2).min()


def test_an_assignment_that_does_not_fit_is_left():
    task = random_task(8, 4, 0)
    tight = replace(task, capacity_bytes=float(task.held_bytes[0].max() * 1.05))
    ends = descend(tight, np.zeros((8, 1), int), nominal, np.random.default_rng(0))
    assert ends[0].value < NO_ROOM
