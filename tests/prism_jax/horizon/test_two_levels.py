"""Two levels of recovery: limits, agreement with simulated jobs, the best setting, and what a run makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.horizon.advice import TwoLevels, changes, two_level_time_s, two_levels_of
from prism_jax.horizon.checkpoint import BEHIND, Checkpoint, Recovery
from prism_jax.horizon.reliability import Hazard, Reliability
from prism_jax.horizon.run import TrainingRun, expected_time
from prism_jax.horizon.steps import StepSum

BOTH = TwoLevels(0.3, 0.2, 0.02, 0.1, 0.1, 0.3)


def simulated_time(levels: TwoLevels, interval: float, k: int, rng: np.random.Generator) -> float:
    """Wall time of k intervals and their copies, event by event."""
    rate = levels.soft_rate + levels.hard_rate
    span = interval + levels.local_blocking + levels.remote_blocking / k
    total, done, outage, is_hard = 0.0, 0, 0.0, False
    while done < k:
        alive, goal = rng.exponential(1.0 / rate), outage if outage > 0.0 else span
        if alive >= goal:
            total, done, outage, is_hard = total + goal, done + (outage == 0.0), 0.0, False
            continue
        is_hard = is_hard or rng.random() < levels.hard_rate / rate
        done = 0 if is_hard else done
        total, outage = total + alive, levels.hard_outage if is_hard else levels.soft_outage
    return total


@pytest.mark.parametrize(("interval", "k"), [(0.3, 1), (0.3, 4), (1.0, 3), (0.1, 12)])
def test_it_is_the_mean_of_simulated_jobs(interval: float, k: int):
    """4,000 jobs; 4.4 standard errors: one false alarm in 100,000."""
    rng = np.random.default_rng(2)
    times = [simulated_time(BOTH, interval, k, rng) for _ in range(4000)]
    error = np.std(times) / np.sqrt(len(times))
    assert abs(np.mean(times) - BOTH.expected_time(k * interval, interval, k)) < 4.4 * error


def test_one_level_is_the_renewal_form():
    hard = replace(BOTH, soft_rate=0.0, hard_rate=0.5, hard_noticed=0.2)
    one = expected_time(10.0, 0.5, 0.12, 0.3, 0.5, 0.2)
    assert hard.expected_time(10.0, 0.5, 1) == pytest.approx(float(one), rel=1e-12)
    soft = replace(BOTH, soft_rate=0.5, hard_rate=0.0, remote_blocking=0.0, soft_outage=0.3, soft_noticed=0.2)
    assert soft.expected_time(10.0, 0.5, 7) == pytest.approx(float(expected_time(10.0, 0.5, 0.02, 0.3, 0.5, 0.2)))


def test_levels_that_are_alike_are_one_level():
    alike = replace(BOTH, remote_blocking=0.0, hard_outage=0.1)
    assert alike.expected_time(10.0, 0.5, 1) == pytest.approx(
        float(expected_time(10.0, 0.5, 0.02, 0.1, 0.5)), rel=1e-12
    )


def test_without_interruptions_only_copies_cost():
    calm = replace(BOTH, soft_rate=0.0, hard_rate=0.0)
    assert calm.expected_time(10.0, 1.0, 5) == pytest.approx(10.0 * (1.0 + 0.02 + 0.1 / 5))
    rare = replace(BOTH, soft_rate=1e-12, hard_rate=1e-15)
    assert rare.expected_time(10.0, 1.0, 5) == pytest.approx(10.4, rel=1e-9)


def test_the_best_setting_is_that_of_a_grid():
    levels = replace(BOTH, soft_rate=0.01, hard_rate=0.002)
    least = min(levels.expected_time(1.0, d, k) for k in range(1, 40) for d in np.geomspace(0.2, 20.0, 200))
    assert levels.expected_time(1.0, *levels.best()) <= least * (1.0 + 1e-4)


def test_a_remote_copy_is_not_asked_for_before_it_is_written():
    interval, k = replace(BOTH, remote_blocking=0.0).best(least_remote=5.0)
    assert interval * k >= 5.0 * (1.0 - 1e-6)


SOFT = Reliability((Hazard("software", per_job_h=1.0, nodes_lost=0.0), Hazard("node", per_node_h=1e-5)))


def run_of(checkpoint: Checkpoint) -> TrainingRun:
    return TrainingRun(100_000, StepSum.fixed(5.0), 16384, 8, SOFT, checkpoint, Recovery(60.0))


def test_a_run_saves_by_a_copy_in_memory_where_some_interruptions_lose_no_node():
    run = run_of(Checkpoint.of_bytes(6e12, 64))
    levels, told = two_levels_of(run), two_level_time_s(run)
    assert levels is not None
    assert told is not None
    assert levels.soft_rate + levels.hard_rate == pytest.approx(run.rate_s)
    assert told[0] < float(run.expected_s())
    named = next(one for one in changes(run) if one.what.startswith("load from memory"))
    assert named.saves_s == pytest.approx(float(run.expected_s()) - told[0])
    behind = run_of(Checkpoint.of_bytes(6e12, 64, BEHIND))
    told_behind = two_level_time_s(behind)
    assert told_behind is not None
    assert told_behind[0] < min(float(behind.expected_s()), told[0])


def test_nothing_is_said_where_a_copy_is_not_known():
    assert two_level_time_s(run_of(Checkpoint(30.0, load_s=60.0))) is None
