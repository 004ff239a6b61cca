"""No assignment is below the lower bound, and where work is even and free of communication the bound is reached."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from prism_jax.sharding.assignment import steps
from prism_jax.sharding.bounds import linear_bound, lower_bound
from prism_jax.sharding.task import Exchange, StepRest, free

from .oracle import random_task


@pytest.mark.parametrize("shared", [False, True])
def test_every_assignment_is_above_the_bound(shared: bool):
    for seed in range(6):
        task = random_task(5, 3, seed, 4, shared)
        codes = np.array(list(product(range(3 + 2 * shared), repeat=5))).T
        assert (steps(task, codes) >= lower_bound([task]) * (1.0 - 1e-12)).all()
        plain = task.with_seconds(task.seconds_s[..., :1])
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
    one = both.of_resources(1)
    assert lower_bound([both, one])[0] == lower_bound([one])[0]
    assert linear_bound([both, both]) >= linear_bound([both, one]) == linear_bound([one, one])
    codes = np.array(list(product(range(3 + 2 * shared), repeat=5))).T
    least = steps(both, codes).min()
    assert least >= lower_bound([both, one])[0] * (1.0 - 1e-12)
    assert least >= linear_bound([both, one]) * (1.0 - 1e-9)
