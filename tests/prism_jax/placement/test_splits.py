"""Uneven splits: simulated as the engine would, rounded to what adds up, and better where nodes differ."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.cost.partition import Splits
from prism_jax.placement.draws import Draws
from prism_jax.placement.evaluator import problem_of, score, step_times, stored
from prism_jax.placement.fleet import fleet_of
from prism_jax.placement.layer_splits import split_layers
from prism_jax.placement.optimisers import as_given
from prism_jax.placement.place import Effort, place
from prism_jax.placement.splits import (
    exact_problem,
    rounded,
    split_micro_batches,
    split_space,
    with_layers,
    with_micro_batches,
)
from prism_jax.result.objective import OBJECTIVES, PlanObjective
from prism_jax.simulate.step_time import step_time
from tests.support.jobs import stated

P95 = PlanObjective(OBJECTIVES.named("p95"))

QUICK = Effort(n_random=50, n_step=200, n_relaxed=2, n_fresh=256, n_kept=32, n_exhaustive=1000)


def test_uneven_replicas_are_the_slowest_of_the_engines_own(job_of, factors):
    """The engine on the job of every replica's own micro-batches and layers, its other replicas made fast."""
    job = stated(job_of(layers=12))  # what is open would shift replicas of unlike micro-batches unlike
    slow = factors(8)
    space = split_space(problem_of(job, fleet_of(slow, 8)))
    splits = Splits((2, 4, 3, 3), (17, 15))
    problem = exact_problem(space.problem, splits)
    found = score(problem, as_given(problem)[None], Draws(jax.random.key(0), 2))[0, 0]
    by_replica = []
    for replica, count in enumerate(splits.micro_batches):
        own = np.full_like(slow, 0.01)
        nodes = problem.slots.slot[:, replica, 0]
        own[nodes] = slow[nodes]
        engine = step_time(with_micro_batches(with_layers(job, splits.layers), count), own.reshape(-1, 1))
        by_replica.append(float(engine[0]))
    assert found == pytest.approx(max(by_replica), rel=2e-6)
    kept = stored(space.problem, Draws(jax.random.key(0), 2))
    searched = step_times(space.tables(splits), kept, as_given(problem)[None])
    assert float(searched[0, 0]) == pytest.approx(found, rel=1e-4)


def test_micro_batches_leave_the_slow_replica(job_of):
    job = job_of(batch=64)
    slow = np.ones(8)
    problem = problem_of(job, fleet_of(slow, 8))
    slow[problem.slots.slot[:, 0, 0]] = 1.2
    space = split_space(problem_of(job, fleet_of(slow, 8)))
    kept = stored(space.problem, Draws(jax.random.key(0), 2))
    seats = as_given(problem)
    found = split_micro_batches(space, space.even, space.tables(space.even), kept, seats, P95)
    assert sum(found.micro_batches) == 64
    times = {}
    for m in range(28, 37):
        tables = space.tables(Splits(space.even.layers, (m, 64 - m)))
        times[m] = float(step_times(tables, kept, seats[None]).max())
    assert times[found.micro_batches[0]] == min(times.values())
    assert found.micro_batches[0] < 32


def test_layers_leave_the_slow_stage(job_of):
    job = job_of(layers=32)
    slow = np.ones(8)
    problem = problem_of(job, fleet_of(slow, 8))
    slow[problem.slots.slot[1, :, 0]] = 1.3
    space = split_space(problem_of(job, fleet_of(slow, 8)))
    kept = stored(space.problem, Draws(jax.random.key(0), 2))
    found = split_layers(space, space.even, kept, as_given(problem), P95)
    assert sum(found.layers) == 32
    assert found.layers[1] == min(found.layers[1:3]) < 8
    even, uneven = (
        float(step_times(space.tables(s), kept, as_given(problem)[None])[0, 0]) for s in (space.even, found)
    )
    assert uneven < 0.95 * even


def test_layers_stay_where_memory_is_full(job_of):
    job = job_of(layers=32)
    full = job.memory.total_bytes
    job = replace(job, cluster=replace(job.cluster, device=replace(job.cluster.device, hbm_bytes=full)))
    slow = np.ones(8)
    slow[2:4] = 1.3
    space = split_space(problem_of(job, fleet_of(slow, 8)))
    kept = stored(space.problem, Draws(jax.random.key(0), 2))
    found = split_layers(space, space.even, kept, as_given(space.problem), P95)
    assert with_layers(job, found.layers).memory.total_bytes <= full


@pytest.mark.slow
def test_free_splits_are_no_worse(job_of, factors):
    job = job_of(layers=16, batch=64, variability="h100-default")
    uneven = place(job, factors(8, seed=1), key=jax.random.key(0), splits=True, effort=QUICK)
    best = min(uneven.value(m)[0] for m in uneven.batches_s if m != "optimised")
    assert uneven.value()[0] <= 1.001 * best
    if uneven.splits is not None:
        assert sum(uneven.splits.layers) == 16
        assert sum(uneven.splits.micro_batches) == 64
    assert uneven.gain.value_s > 0


@pytest.mark.parametrize("seed", range(4))
def test_rounding_keeps_the_sum(seed):
    rng = np.random.default_rng(seed)
    relaxed = rng.uniform(0, 8, 6)
    relaxed += (round(relaxed.sum()) - relaxed.sum()) / 6
    found = rounded(np.clip(relaxed, 0, 8), 9)
    assert found.sum() == round(relaxed.sum())
    assert np.abs(found - relaxed).max() < 1.5
