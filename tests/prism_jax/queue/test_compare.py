"""Worlds and estimates against laws that are known."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.queue.compare import QueueCase, compare
from prism_jax.queue.jobs import QueuedJobs, capacity_of, check_capacity
from prism_jax.queue.policies import POLICIES
from prism_jax.queue.world import ESTIMATES, draw_world, matched_level, slowest_of, spread_to
from prism_jax.variability.config import preset

SHAPE = preset("v100-longhorn")


def jobs(n=200):
    rng = np.random.default_rng(0)
    return QueuedJobs(
        np.sort(rng.uniform(0, 1e5, n)), rng.choice([1, 2, 8], n).astype(np.int32), rng.uniform(100, 5e3, n)
    )


@pytest.mark.parametrize("cv", [0.01, 0.09])
def test_the_spread_between_gpus_is_what_was_asked_for(cv):
    factor = draw_world(jobs(), 20_000, spread_to(SHAPE, cv), 1.0, 3).factor
    assert abs(factor.std() / factor.mean() / cv - 1.0) < 0.1
    assert abs(factor.mean() - 1.0) < 0.003


def test_without_spread_every_estimate_is_the_duration():
    world = draw_world(jobs(), 16, spread_to(SHAPE, 0.0), 1.0, 0)
    for estimate in ESTIMATES:
        np.testing.assert_allclose(estimate.seconds(world), world.jobs.duration_s)


def test_the_slowest_of_some_gpus_has_the_law_of_a_maximum():
    factor, level = np.arange(1.0, 1001.0), np.random.default_rng(0).random(50_000)
    assert abs(slowest_of(factor, np.full(50_000, 4.0), level).mean() / 800.0 - 1.0) < 0.005, "n N / (n + 1)"


def test_quantiles_cover_as_often_as_they_say():
    """Seconds on other GPUs of the fleet: below p95 in 95%, below the median in 50%; 2,000 jobs: bounds of 4 errors."""
    many = jobs(2_000)
    world = draw_world(many, 256, spread_to(SHAPE, 0.05), 1.0, 1)
    true_s = world.work_s * slowest_of(world.factor, many.gpus, np.random.default_rng(9).random(len(many)))
    for name, level in (("p50", 0.5), ("p95", 0.95)):
        below = (true_s <= ESTIMATES.named(name).seconds(world)).mean()
        assert abs(below - level) < 4.0 * np.sqrt(level * (1.0 - level) / len(many)) + 0.01


def test_the_less_slack_the_higher_the_quantile():
    world = draw_world(jobs(), 16, SHAPE, 1.0, 0)
    slack = (world.deadline_s - world.jobs.submit_s) / world.seen_s
    assert (np.diff(matched_level(world)[np.argsort(slack)]) <= 0.0).all()


def test_worlds_are_the_same_for_the_same_seed_only():
    first, again, other = (draw_world(jobs(), 16, SHAPE, 1.0, seed) for seed in (0, 0, 1))
    assert (first.factor == again.factor).all()
    assert (first.seen_s == again.seen_s).all()
    assert (first.factor != other.factor).any()


def test_busy_gpus_are_those_that_run_if_nothing_waits():
    # 2 GPUs for 10 s, 3 for 10 s, 1 for 20 s
    found = QueuedJobs(np.array([0.0, 10.0]), np.array([2, 1], np.int32), np.array([20.0, 30.0]))
    assert [found.busy_gpus(percent) for percent in (20, 60, 90)] == [1, 2, 3]


def test_a_cluster_holds_the_largest_job_and_the_load():
    large = QueuedJobs(np.array([0.0, 1e6]), np.array([64, 1], np.int32), np.array([10.0, 10.0]))
    assert capacity_of(large, 50) == 64
    with pytest.raises(DataError, match="1 jobs need more"):
        check_capacity(large, 63)


def test_comparisons_are_repeatable_and_measured_against_themselves():
    setting = QueueCase(24, SHAPE, 1.0, 60.0, range(2))
    first, again = (compare(jobs(), setting, [0.03], list(POLICIES), list(ESTIMATES)) for _ in range(2))
    assert first == again
    assert len(first) == 3 + 3 * 4
    for row in first:
        if row.policy == "fifo":
            assert row.over_fifo.median == 1.0
        if row.estimate == "mean":
            assert row.over_point is not None
            assert row.over_point.median == 1.0


def test_a_preset_that_does_not_vary_cannot_be_scaled():
    with pytest.raises(DataError, match="do not differ"):
        spread_to(preset("none"), 0.03)
