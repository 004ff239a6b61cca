"""Otsu's threshold, and transfers that it tells from waits."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from experiments.otsu_split.run import WAYS, compared
from experiments.otsu_split.split import long_share, otsu_threshold, with_otsu_split
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.recorded_job import fit_job
from prism_jax.trace.trace import Trace


@given(st.lists(st.integers(1, 50), min_size=2, max_size=40))
def test_the_threshold_is_the_best_of_all_splits(numbers: list[int]) -> None:
    values = np.array(numbers, float)

    def between(t: float) -> float:
        low, high = values[values <= t], values[values > t]
        return len(low) * len(high) * (low.mean() - high.mean()) ** 2 if len(low) and len(high) else 0.0

    found = otsu_threshold(values)
    assert between(found) == pytest.approx(max(between(t) for t in values), rel=1e-9)
    assert otsu_threshold(3.0 * values) == pytest.approx(3.0 * found)


@pytest.mark.parametrize("log", [False, True])
def test_transfers_of_the_short_class_stay_and_those_of_the_long_one_become_like_them(log: bool) -> None:
    trace = open_trace("local_cluster")
    assert isinstance(trace, Trace)
    job = fit_job(trace)
    found, recorded_s = with_otsu_split(job, 0, log), trace.end_s - trace.start_s
    grouped = (job.waits.needs.group >= 0) & ~job.waits.needs.hidden_meeting
    assert (found.run_s[~grouped] == job.run_s[~grouped]).all()
    changed = found.run_s[grouped] != recorded_s[grouped]
    assert changed.mean() == pytest.approx(long_share(job, log), abs=0.05)
    assert (found.run_s[grouped][changed] < recorded_s[grouped][changed]).all()


def test_the_latest_start_replays_what_was_recorded_and_the_threshold_does_not() -> None:
    trace = open_trace("local_cluster")
    assert isinstance(trace, Trace)
    figures, drawn = compared(trace, {"seed": 0, "n_split": 2, "n_draw": 400})
    assert figures["latest start"]["replay_error"] < 1e-4
    assert all(figures[name]["replay_error"] > 0.005 for name in WAYS if name != "latest start")
    assert set(drawn) == set(WAYS)
