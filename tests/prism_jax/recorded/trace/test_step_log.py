"""StepLog: what it refuses."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.step_log import StepLog


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
