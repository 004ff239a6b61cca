"""Logs of step times, and the warm-up that is left out."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.trace.step_log import StepLog, without_warm_up
from tests.support.traces import trace_at


def log(seconds: list[float], n_steps: list[int] | None = None) -> StepLog:
    n = len(seconds)
    return StepLog("a.log", "a", np.arange(n), np.array(seconds), np.array(n_steps or [1] * n, dtype=np.int32))


def test_times_and_counts_are_kept():
    assert log([1.0, 2.5], [1, 10]).step_s.tolist() == [1.0, 2.5]
    assert len(log([1.0, 2.5])) == 2


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_impossible_times_name_their_entry(seconds: float):
    with pytest.raises(DataError, match=r"a\.log: entry 2, step 1: .* s over 1 steps, but both must be more than 0"):
        log([1.0, seconds])


def test_impossible_counts_and_empty_logs_are_refused():
    with pytest.raises(DataError, match="entry 1, step 0: 1.0 s over 0 steps"):
        log([1.0, 1.0], [0, 1])
    with pytest.raises(DataError, match="no step times"):
        log([])
    with pytest.raises(DataError, match="differ in length"):
        log([1.0, 1.0], [1])


# --- The rule that tells warm-up from steps like any other -----------------------------------------------------------


STEADY = [1.0, 1.02, 0.99, 1.01, 0.98, 1.03, 1.0, 0.97] * 10


def warm_up_log(step_s: list[float], n_steps: int = 1, step: Any = None) -> StepLog:
    numbers = np.arange(len(step_s), dtype=np.int64) * n_steps if step is None else np.array(step, np.int64)
    return StepLog("run.log", "run", numbers, np.array(step_s), np.full(len(step_s), n_steps, np.int32), ("note",))


@pytest.mark.parametrize(
    ("first", "n"),
    [
        ([], 0),
        ([27.5], 1),
        ([33.8, 0.06], 2),  # asynchronous dispatch: the second step is too short
        ([30.0, 1.0, 12.0], 3),  # compiled twice
        ([30.0, 4.0, 2.0, 1.6], 4),
        ([1.0, 30.0], 0),  # a step that was slow, and not the first
        ([1.2], 0),
    ],
)
def test_first_steps_that_are_unlike_the_others_are_left_out(first: list[float], n: int):
    found, n_left_out = without_warm_up(warm_up_log(first + STEADY))
    assert n_left_out == n
    assert found.step_s.tolist() == (first + STEADY)[n:]
    assert found.notes == ("note",) if n == 0 else "left out as warm-up (step" in found.notes[-1]


def test_the_note_says_how_many_and_why():
    found, _ = without_warm_up(warm_up_log([27.5, 3.0, *STEADY]))
    assert found.notes[-1] == (
        "2 recorded steps are left out as warm-up (steps 0, 1: 27.5, 3 times the median of the others, 1 s); "
        "--skip 0 keeps them, --skip N leaves out the first N"
    )


def test_a_job_that_changed_is_no_warm_up():
    assert without_warm_up(warm_up_log([2.0] * 40 + STEADY))[1] == 0
    assert without_warm_up(warm_up_log([9.0, 9.0, 9.0, 1.0]))[1] == 0  # too few to tell


def test_every_start_of_a_log_has_a_warm_up():
    steps = [*range(40), *range(30, 70)]
    step_s = [20.0, *STEADY[:39], 15.0, 3.0, *STEADY[:38]]
    found, n_left_out = without_warm_up(warm_up_log(step_s, step=steps))
    assert n_left_out == 3
    assert found.step_s.max() < 2.0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0.7, 1.4), min_size=1, max_size=60))
def test_steps_within_the_factor_are_never_left_out(step_s: list[float]):
    middle = float(np.median(step_s[len(step_s) // 2 :]))
    within = [middle * min(max(one / middle, 1 / 1.49), 1.49) for one in step_s]
    assert without_warm_up(warm_up_log(within))[1] == 0


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 1e3), st.sampled_from([[27.5, 0.1, 3.0], [9.0], [0.2]]))
def test_the_unit_does_not_matter(unit: float, first: list[float]):
    n = [without_warm_up(warm_up_log([scale * one for one in first + STEADY]))[1] for scale in (1.0, unit)]
    assert n == [len(first), len(first)]


def test_false_alarms_are_as_rare_as_a_first_step_in_the_tail():
    """Log-normal steps with a CV of 50%: none of 300 logs loses a step at 6 robust standard deviations (2e-9 each)."""
    rng = np.random.default_rng(0)
    logs = np.exp(0.47 * rng.standard_normal((300, 50)))
    assert sum(without_warm_up(warm_up_log(one.tolist()))[1] for one in logs) <= 1


@pytest.mark.parametrize(("skip", "left"), [(0, 82), (1, 81), (3, 79), (81, 1)])
def test_a_number_of_steps_to_skip_is_taken_at_its_word(skip: int, left: int):
    found, n_left_out = without_warm_up(warm_up_log([27.5, 3.0, *STEADY]), skip)
    assert (len(found), n_left_out) == (left, 82 - left)


def test_steps_to_skip_are_steps_and_not_entries():
    found, _ = without_warm_up(warm_up_log([3.0, *STEADY], n_steps=10), 11)
    assert found.step.tolist()[0] == 20
    with pytest.raises(DataError, match=r"run\.log: --skip 810 leaves none of 810 recorded steps"):
        without_warm_up(warm_up_log([3.0, *STEADY], n_steps=10), 810)


def test_steps_of_a_trace_are_left_out_with_their_ops():
    trace = trace_at("local_cluster")
    found, n_left_out = without_warm_up(trace, 5)
    assert n_left_out == 5
    assert found.steps.tolist() == trace.steps.tolist()[5:]
    np.testing.assert_array_equal(found.step_s, trace.step_s[5:])
