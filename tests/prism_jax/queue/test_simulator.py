"""Schedules that can be worked out by hand, and what holds for every schedule."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.queue.jobs import QueuedJobs
from prism_jax.queue.policies import POLICIES, LeastAttained
from prism_jax.queue.simulator import QueueSegment, simulate
from prism_jax.queue.world import World

LATE = 1e9


def world(jobs, factor=(1.0,), deadline_s=None, seen_s=None):
    """(submission, GPUs, seconds) of every job, on GPUs of these factors."""
    submit_s, gpus, duration_s = (np.array(column, dtype=float) for column in zip(*jobs, strict=True))
    queued = QueuedJobs(submit_s, gpus.astype(np.int32), duration_s)
    deadline_s = np.full(len(jobs), LATE) if deadline_s is None else np.array(deadline_s, dtype=float)
    seen_s = duration_s if seen_s is None else np.array(seen_s, dtype=float)
    return World(queued, np.sort(np.array(factor, dtype=float)), duration_s, seen_s, deadline_s, 0)


def ends(jobs, policy, n_gpus=1, **extra):
    restart_s = extra.pop("restart_s", 0.0)
    policy = POLICIES.named(policy) if isinstance(policy, str) else policy
    return simulate(world(jobs, [1.0] * n_gpus, **extra), policy, restart_s=restart_s).end_s.tolist()


THREE = [(0, 1, 10), (1, 1, 5), (2, 1, 1)]


@pytest.mark.parametrize(
    ("policy", "expected"), [("fifo", [10, 15, 16]), ("sjf", [10, 16, 11]), ("srtf", [16, 7, 3]), ("pal", [10, 15, 16])]
)
def test_three_jobs_on_one_gpu(policy, expected):
    assert ends(THREE, policy) == expected


def test_a_restart_holds_the_gpu_every_time_a_job_comes_back():
    # The first job stops at 1, the second at 2; the third ends at 3, then restart and 4 s left, then restart and 9 s left.
    assert ends(THREE, "srtf", restart_s=2.0) == [20.0, 9.0, 3.0]


def test_least_attained_moves_jobs_down_when_their_queue_is_used_up():
    # The first job leaves its queue after 4 s; the second runs 4 s, then both stand in the last queue, the first one first.
    assert ends([(0, 1, 6), (1, 1, 6)], LeastAttained((4.0,))) == [10.0, 12.0]


def test_least_attained_counts_gpus_and_time():
    # Two GPUs use up 4 GPU-seconds in 2 s.
    assert ends([(0, 2, 3), (1, 2, 3)], LeastAttained((4.0,)), n_gpus=2) == [5.0, 6.0]


def test_earliest_deadline_interrupts_and_leaves_the_late_for_last():
    assert ends([(0, 1, 10), (1, 1, 2)], "edf", deadline_s=[100, 4]) == [12, 3]
    assert ends([(0, 1, 10), (1, 1, 5)], "edf", deadline_s=[100, 4]) == [10, 15], "the second cannot make it"


def test_a_waiting_job_that_becomes_late_gives_way():
    # The second could make it until 9; at 10 the third, whose deadline is later, goes first.
    found = ends([(0, 1, 10), (1, 1, 5), (2, 1, 5)], "edf", deadline_s=[10.5, 14, 30])
    assert found == [10, 20, 15]


def test_fifo_holds_back_small_jobs_and_sjf_does_not():
    jobs = [(0, 1, 10), (1, 2, 5), (2, 1, 3)]
    assert ends(jobs, "fifo", n_gpus=2) == [10, 15, 18]
    assert ends(jobs, "sjf", n_gpus=2) == [10, 15, 5]


def test_a_job_is_as_fast_as_its_slowest_gpu():
    found = simulate(world([(0, 2, 10)], [1.0, 1.5]), POLICIES.named("fifo"))
    assert found.end_s.tolist() == [15.0]


def test_fast_gpus_come_first_where_placement_looks_at_them():
    jobs = [(i * 100.0, 1, 10) for i in range(8)]
    factor = [1.0, 1.1, 1.2, 1.3]
    aware, blind = (simulate(world(jobs, factor), POLICIES.named(name)) for name in ("pal", "fifo"))
    assert np.allclose(aware.jct_s, 10.0)
    assert np.isclose(blind.jct_s.mean(), 11.5), "every GPU twice"


def test_policies_follow_estimates_and_not_the_truth():
    jobs = [(0, 1, 1), (0, 1, 10), (0, 1, 2)]
    assert ends(jobs, "sjf", seen_s=[1, 2, 10]) == [1, 11, 13]


def test_a_job_that_outlasts_its_estimate_is_finished():
    assert ends([(0, 1, 10), (2, 1, 5)], "srtf", seen_s=[1, 5]) == [10, 15]


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_shortest_first_is_best_on_one_gpu_where_all_wait(durations):
    jobs = [(0.0, 1, float(seconds)) for seconds in durations]
    best = min(np.cumsum(order).mean() for order in permutations(durations))
    for policy in ("sjf", "srtf"):
        assert np.isclose(np.mean(ends(jobs, policy)), best)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), min_size=2, max_size=7))
def test_shortest_remaining_is_never_worse_on_one_gpu(found):
    jobs = sorted((float(submit), 1, float(seconds)) for submit, seconds in found)
    submit = np.array([job[0] for job in jobs])
    mean = {name: np.mean(np.array(ends(jobs, name)) - submit) for name in ("fifo", "sjf", "srtf", "edf")}
    assert mean["srtf"] <= min(mean.values()) + 1e-9


def random_worlds(n):
    """Small busy clusters, with estimates and deadlines that have little to do with the truth."""
    for seed in range(n):
        rng = np.random.default_rng(seed)
        n_gpus, n_jobs = int(rng.integers(1, 10)), int(rng.integers(1, 26))
        rows = np.sort(rng.integers(0, 40, n_jobs)), rng.integers(1, n_gpus + 1, n_jobs), rng.integers(1, 30, n_jobs)
        jobs = list(zip(*(column.tolist() for column in rows), strict=True))
        spare = rows[0] + rng.integers(0, 60, n_jobs)
        yield world(jobs, rng.choice([1.0, 1.05, 1.3], n_gpus), spare, rng.integers(1, 40, n_jobs))


@pytest.mark.parametrize("restart_s", [0.0, 3.0])
@pytest.mark.parametrize("policy", POLICIES.names)
def test_every_schedule_is_possible_and_does_the_work(policy, restart_s):
    for drawn in random_worlds(40):
        check_schedule(drawn, policy, restart_s)


def check_schedule(drawn, policy, restart_s):
    segments: list[QueueSegment] = []
    found = simulate(drawn, POLICIES.named(policy), restart_s=restart_s, segments=segments)
    jobs, done, back = drawn.jobs, np.zeros(len(drawn.jobs)), np.zeros(len(drawn.jobs))
    stretches: dict[int, list[tuple[float, float]]] = {}
    for job, start_s, end_s, gpus in segments:
        assert len(set(gpus)) == len(gpus) == jobs.gpus[job]
        assert jobs.submit_s[job] <= start_s <= end_s
        lost_s = min(restart_s, end_s - start_s) if back[job] else 0.0
        done[job] += (end_s - start_s - lost_s) / drawn.factor[list(gpus)].max()
        back[job] += 1
        for gpu in gpus:
            assert 0 <= gpu < len(drawn.factor)
            stretches.setdefault(gpu, []).append((start_s, end_s))
    np.testing.assert_allclose(done, drawn.work_s, rtol=1e-9)
    for own in stretches.values():
        own.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(own)), "one job at a time"
    used = sum((end_s - start_s) * len(gpus) for _, start_s, end_s, gpus in segments)
    assert np.isclose(found.used_s @ jobs.gpus, used)
    assert (back == found.n_stops + 1).all()


def test_fifo_starts_in_the_order_of_submission():
    for drawn in random_worlds(40):
        segments: list[QueueSegment] = []
        simulate(drawn, POLICIES.named("fifo"), segments=segments)
        start_s = {segment.job: segment.start_s for segment in segments}
        assert [start_s[job] for job in range(len(start_s))] == sorted(start_s.values())


def test_a_random_queue_waits_as_long_as_theory_says():
    """At load .5: 1 / (μ - λ) = 2 service times (M/M/1) and 1.5 (M/D/1). Bounds are four standard errors: M/M/1 has .027."""
    rng = np.random.default_rng(1)
    submit_s = np.cumsum(rng.exponential(2.0, 40_000))
    for seconds, expected, error in (
        (rng.exponential(1.0, len(submit_s)), 2.0, 0.11),
        (np.ones(len(submit_s)), 1.5, 0.06),
    ):
        jobs = QueuedJobs(submit_s, np.ones(len(submit_s), np.int32), seconds)
        drawn = World(jobs, np.ones(1), seconds, seconds, submit_s + LATE, 0)
        assert abs(simulate(drawn, POLICIES.named("fifo")).jct_s.mean() - expected) < error


def test_the_same_world_gives_the_same_schedule():
    rng = np.random.default_rng(2)
    jobs = [
        (float(at), int(n), float(s))
        for at, n, s in zip(
            np.sort(rng.integers(0, 99, 60)), rng.integers(1, 5, 60), rng.integers(1, 40, 60), strict=True
        )
    ]
    for policy in POLICIES.names:
        first, second = (simulate(world(jobs, [1.0, 1.1, 1.2, 1.3, 1.4]), POLICIES.named(policy)) for _ in range(2))
        assert (first.end_s == second.end_s).all()
