"""The batched evaluator agrees with loops over ranks and pieces, and memory masks what does not fit."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.sharding import assignment as evaluate
from prism_jax.sharding.assignment import NO_ROOM, loads, steps, values
from prism_jax.sharding.search import nominal

from .oracle import random_task, slow_memory, slow_step


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
