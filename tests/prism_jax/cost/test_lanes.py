"""Lanes of a GPU that share it: times, blocks, and overlap within a chunk."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from experiments.capture.overlap.run import MOST_ROUNDS, TOLERANCE, iterated, pair_s, random_tasks
from prism_jax.core.errors import SpecError
from prism_jax.cost import lanes as block_lanes
from prism_jax.cost.chunk_cost import behind, bucketed, cut_up, prefetched
from prism_jax.cost.lanes import LaneTask, Overlapping, lane_times, laned_seconds
from prism_jax.workload.base.kernels import Kernel
from prism_jax.workload.base.workload import Comm, LanedRow


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


# --- What of a block's communication shows, by the order of its rows -------------------------------------------------


FREE = Overlapping(0.0, 1.0)
TP = 0  # index of the axis


@dataclass
class Rows:
    """A block of rows."""

    laned: list[LanedRow]
    repeats: list[tuple[int, int, int]] = field(default_factory=list)


def kernel(index: int, phase: str = "F", times: int = 1) -> LanedRow:
    return LanedRow(index, phase, times, kernel=Kernel("mm", phase, "gemm"))


def comm(index: int, wait: int | None = None, phase: str = "F", times: int = 1, axis: str = "tp") -> LanedRow:
    return LanedRow(index, phase, times, Comm(axis, "all_reduce", phase, 1.0, 1, 2), wait=wait)


def found(block: Any, seconds: list[float], overlapping: Overlapping = FREE):
    return laned_seconds(block, seconds, [0] * len(seconds), 3, overlapping)


def test_a_collective_that_blocks_shows_whole():
    out = found(Rows([kernel(0), comm(1), kernel(2)]), [1.0, 0.5, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.hidden_s.sum() == 0.0
    assert out.compute_s[0, 0] == pytest.approx(3.0)


def test_a_collective_hides_behind_what_runs_until_it_is_waited_for():
    out = found(Rows([kernel(0), comm(1, wait=3), kernel(2), kernel(3)]), [1.0, 2.5, 2.0, 1.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.hidden_s[0, TP] == pytest.approx(2.0)


def test_two_that_block_one_after_another_both_show_though_the_second_does_not():
    out = found(Rows([comm(0), comm(1, wait=9, axis="dp"), kernel(2)]), [1.0, 0.5, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(1.0)
    assert out.hidden_s[0].sum() == pytest.approx(0.5)


def test_a_collective_slows_the_compute_beside_it():
    out = found(Rows([kernel(0), comm(1, wait=9), kernel(2)]), [1.0, 1.0, 2.0], Overlapping(0.25, 1.0))
    assert out.compute_s[0, 0] == pytest.approx(3.0 + 0.25 / 1.25)


def test_passes_do_not_overlap():
    out = found(Rows([kernel(0), comm(1, wait=9), kernel(2, "B")]), [1.0, 1.0, 2.0])
    assert out.exposed_s[0, TP] == pytest.approx(1.0)
    assert out.compute_s[1, 0] == pytest.approx(2.0)


def test_what_is_fetched_one_run_ahead_shows_once_if_it_is_shorter_than_a_run():
    rows = [comm(0), comm(1, wait=1, times=5), kernel(2, times=5)]
    out = found(Rows(rows, [(1, 3, 5)]), [0.5, 0.5, 1.0])
    assert out.exposed_s[0, TP] == pytest.approx(0.5)
    assert out.compute_s[0, 0] == pytest.approx(5.0)


@pytest.mark.parametrize("seconds", [[0.3, 1.0, 0.4], [1.7, 1.0, 0.4]])
def test_a_few_runs_stand_for_many(seconds: list[float], monkeypatch: pytest.MonkeyPatch):
    rows = [comm(0, wait=0, times=200), kernel(1, times=200), comm(2, times=200, axis="dp")]
    block = Rows(rows, [(0, 3, 200)])
    whole = found(block, seconds, Overlapping(0.2, 1.0))
    monkeypatch.setattr(block_lanes, "MOST_TASKS", 50)
    few = found(block, seconds, Overlapping(0.2, 1.0))
    for name in ("compute_s", "exposed_s", "hidden_s"):
        np.testing.assert_allclose(getattr(few, name), getattr(whole, name), rtol=1e-9, atol=1e-12)


# --- Exposure: nothing is lost between what shows and what hides -----------------------------------------------------


SECONDS = st.floats(0.0, 10.0)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(SECONDS, SECONDS, st.integers(1, 64))
def test_exposed_and_hidden_add_up(comm: float, window: float, n: int) -> None:
    for part in (behind(comm, window), cut_up(comm, window, n), bucketed(comm, window, n), bucketed(comm, window, 0)):
        assert part.exposed_s + part.hidden_s == pytest.approx(comm)
        assert part.exposed_s >= 0.0
        assert 0.0 <= part.hidden_s <= max(window, 0.0) + 1e-12


def test_a_wide_window_hides_everything_but_the_first_piece() -> None:
    assert behind(1.0, 2.0) == (0.0, 1.0)
    assert cut_up(1.0, 2.0, 8).exposed_s == pytest.approx(1 / 8)
    assert bucketed(1.0, 2.0, 10).exposed_s == pytest.approx(1 / 10)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(SECONDS, SECONDS, st.floats(0.0, 1.0))
def test_communication_shows_where_it_outlasts_its_share_of_the_window(
    comm: float, window: float, share: float
) -> None:
    part = behind(comm, window, share)
    assert part.exposed_s == pytest.approx(max(0.0, comm - share * window), abs=1e-12)
    assert part.hidden_s == pytest.approx(min(comm, share * window))


def test_what_has_nothing_beside_it_shows_whatever_the_window() -> None:
    assert prefetched(4.0, 1.0, 100.0) == (1.0, 3.0)
    assert prefetched(4.0, 1.0, 4.0, 0.5) == (2.0, 2.0)


def test_a_longer_communication_shows_from_a_knee_on_and_then_in_full() -> None:
    shown = [float(behind(comm, 2.0, 0.5).exposed_s) for comm in (0.5, 1.0, 1.5, 2.0)]
    assert shown == pytest.approx([0.0, 0.0, 0.5, 1.0])


def test_without_buckets_the_reduction_waits_for_the_end() -> None:
    assert bucketed(1.0, 5.0, 0) == (1.0, 0.0)
