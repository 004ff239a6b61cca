"""Times of day, and step times from them."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.recorded.formats.log_entries import TICKS, steps_by_clock, timestamp

NOON = 1_741_780_800.0  # 2025-03-12 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "seconds", "resolution"),
    [
        ("[titan] 2025-03-12 12:00:01,250 - root", NOON + 1.25, 1e-3),
        ("[2025-03-12 12:00:01,250] [INFO]", NOON + 1.25, 1e-3),
        ("2025-03-12T12:00:01.250000Z step", NOON + 1.25, 1e-6),
        ("2025-03-12 12:00:01 step", NOON + 1.0, 1.0),
        ("03/12/2025 12:00:01 [INFO|DP=0]", NOON + 1.0, 1.0),
        ("started 2024-01-01 00:00:00, now 2025-03-12 12:00:00,000", NOON, 1e-3),
    ],
)
def test_times_of_day(text: str, seconds: float, resolution: float):
    found = timestamp(text)
    assert found is not None
    assert found == pytest.approx((seconds, resolution))


def test_glog_has_no_year_and_differences_are_right():
    first, second = timestamp("I0811 21:54:55.500000 1 a.py:1]"), timestamp("I0812 00:00:00.000000 1 a.py:1]")
    assert first is not None
    assert second is not None
    assert second[0] - first[0] == pytest.approx(7504.5)


@pytest.mark.parametrize("text", ["", "step 3", "2025-99-12 12:00:01", "12:00:01", "1.2025-3-1"])
def test_what_is_no_time_of_day(text: str):
    assert timestamp(text) is None


def test_pauses_and_restarts_are_left_out():
    step = np.array([1, 2, 3, 4, 3, 4])
    found = steps_by_clock(step, np.array([0.0, 1.0, 2.0, 60.0, 99.0, 100.0]), np.array([0, 0, 0, 1, 1, 1]), 1e-3)
    assert found.step.tolist() == [2, 3, 4]
    assert found.step_s.tolist() == [1.0, 1.0, 1.0]
    assert "1 intervals with an evaluation or a checkpoint" in found.notes[-1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.5, 20.0), min_size=60, max_size=200))
def test_a_clock_of_whole_seconds_gives_means_that_are_right_to_two_percent(step_s: list[float]):
    exact = np.cumsum([0.0, *step_s])
    found = steps_by_clock(np.arange(len(exact)), np.floor(exact), np.zeros(len(exact), np.int64), 1.0)
    ends = found.step
    starts = ends - found.n_steps
    truth = (exact[ends] - exact[starts]) / found.n_steps
    assert len(found.step) == 0 or np.abs(found.step_s / truth - 1.0).max() <= 1.0 / (TICKS - 1)
    assert (starts[1:] == ends[:-1]).all()  # every step is in one interval
