"""Local search finds optima that exhaustion confirms, never worsens a start, and finds room where a start has none."""

from dataclasses import replace
from itertools import product

import numpy as np

from prism_jax.sharding.assignment import NO_ROOM, values
from prism_jax.sharding.local_search import descend
from prism_jax.sharding.search import nominal
from prism_jax.sharding.sharders import SHARDERS

from .oracle import random_task


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
