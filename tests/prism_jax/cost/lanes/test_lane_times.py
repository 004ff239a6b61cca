"""Lanes that slow each other: closed forms, bounds, work that is conserved, and the fixed point of an independent iteration."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.capture.overlap.run import MOST_ROUNDS, TOLERANCE, iterated, pair_s, random_tasks
from prism_jax.core.errors import SpecError
from prism_jax.cost.lanes import LaneTask, lane_times


@pytest.mark.parametrize("slows", [0.0, 0.19, 1.0])
@pytest.mark.parametrize(("work_s", "comm_s"), [(1.0, 0.3), (1.0, 1.0), (0.3, 2.0), (1e-6, 5.0)])
def test_one_kernel_beside_one_collective(work_s: float, comm_s: float, slows: float):
    found = lane_times([LaneTask(work_s, 0), LaneTask(comm_s, 1, slows=slows)]).total_s
    assert found == pytest.approx(pair_s(work_s, comm_s, slows), rel=1e-12)


def test_a_collective_that_gets_a_share_of_the_time_beside_compute():
    times = lane_times([LaneTask(1.0, 0), LaneTask(1.0, 1, share=0.5)])
    assert times.total_s == pytest.approx(1.5)  # half of it beside the kernel, the rest at full rate
    assert times.idle_s[1] == pytest.approx(0.5)


def test_tasks_of_a_lane_run_one_after_another_and_wait_for_others():
    times = lane_times([LaneTask(1.0, 0), LaneTask(2.0, 1, (0,)), LaneTask(1.0, 0, (1,)), LaneTask(0.0, 0)])
    assert times.start_s == [0.0, 1.0, 3.0, 4.0]
    assert times.total_s == 4.0
    assert times.idle_s == [0.0, 2.0]


def test_random_graphs_lie_between_unslowed_and_fully_slowed_and_at_the_fixed_point():
    rng = np.random.default_rng(5)
    for _ in range(60):
        tasks = random_tasks(rng)
        found = lane_times(tasks).total_s
        slowest = 1.0 + max(task.slows for task in tasks)
        free = [replace(task, slows=0.0) for task in tasks]
        full = [replace(task, work_s=task.work_s * (slowest if task.lane == 0 else 1.0)) for task in free]
        assert lane_times(free).total_s <= found * (1 + 1e-12)
        assert found <= lane_times(full).total_s * (1 + 1e-12)
        iterated_s, rounds = iterated(tasks)
        assert rounds <= MOST_ROUNDS
        assert iterated_s == pytest.approx(found, rel=2 * TOLERANCE)


def test_scaling_all_work_scales_all_times():
    tasks = random_tasks(np.random.default_rng(2))
    scaled = [replace(task, work_s=3.0 * task.work_s) for task in tasks]
    assert lane_times(scaled).total_s == pytest.approx(3.0 * lane_times(tasks).total_s)


@pytest.mark.parametrize("after", [(0,), (1,), (-1,)])
def test_a_task_cannot_wait_for_itself_or_a_later_one(after: tuple[int, ...]):
    with pytest.raises(SpecError, match="waits for"):
        lane_times([LaneTask(1.0, 0, after)])


def test_nothing_takes_no_time():
    assert lane_times([]).total_s == 0.0
