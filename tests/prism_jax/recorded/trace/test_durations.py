"""Work and gaps by hand: transfers count from the last arrival, and clocks that disagree a little do no harm."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.trace.assemble import assemble
from prism_jax.trace.dependencies import CLOCK_FAULT_S, Dependencies, durations, last_arrival, ready_s
from prism_jax.trace.pipeline import recorded_order
from prism_jax.trace.trace import JobShape, OpRow, OpTable, Trace

WORK_A, MEET_A, WORK_B, MEET_B = range(4)


@pytest.fixture
def pair() -> tuple[Trace, Dependencies]:
    """Two workers work 1 s and 3 s, meet, and are through at 3.5 s; the second one is launched 0.2 s late."""
    rows = [
        OpRow(0, 0, 0, 0, "work", -1, -1, 10.0, 1.0, "main"),
        OpRow(0, 0, 0, 0, "meet", -1, -1, 11.0, 2.5, "main", "g"),
        OpRow(0, 0, 1, 0, "work", -1, -1, 10.0, 2.8, "main"),
        OpRow(0, 0, 1, 0, "meet", -1, -1, 13.0, 0.5, "main", "g"),
    ]
    trace = assemble(OpTable.from_rows("x", rows), JobShape("j", pp=2))
    return trace, recorded_order(trace)


def test_transfer_counts_from_the_last_arrival(pair: tuple[Trace, Dependencies]) -> None:
    trace, needs = pair
    found = durations(trace, needs)
    np.testing.assert_allclose(found.run_s[:, 0, 0], [1.0, 0.5, 2.8, 0.5])
    np.testing.assert_allclose(found.gap_s[:, 0, 0], [0.0, 0.0, 0.0, 0.2], atol=1e-12)
    np.testing.assert_allclose(ready_s(trace, needs)[:, 0, 0], [0.0, 1.0, 0.0, 2.8])
    np.testing.assert_allclose(last_arrival(trace.start_s, needs)[:, 0, 0], [0.0, 3.0, 0.0, 3.0])


@pytest.mark.parametrize(("early_s", "kept_s"), [(0.5 * CLOCK_FAULT_S, -0.5 * CLOCK_FAULT_S), (3 * CLOCK_FAULT_S, 0.0)])
def test_a_few_milliseconds_before_what_an_op_waits_for_are_kept_and_more_is_a_fault_of_the_clock(
    pair: tuple[Trace, Dependencies], early_s: float, kept_s: float
) -> None:
    """So means stay right: where a transfer ends before its last peer starts, an op before the work it follows has ended."""
    trace, needs = pair
    end_s, start_s = trace.end_s.copy(), trace.start_s.copy()
    end_s[MEET_A] = trace.start_s[MEET_B] - early_s
    start_s[MEET_A] = trace.end_s[WORK_A] - early_s
    ended, started = durations(replace(trace, end_s=end_s), needs), durations(replace(trace, start_s=start_s), needs)
    assert ended.run_s[MEET_A].item() == pytest.approx(kept_s, abs=1e-12)
    assert started.gap_s[MEET_A].item() == pytest.approx(kept_s, abs=1e-12)


def test_replicas_that_meet_wait_for_the_last_replica() -> None:
    rows = [
        OpRow(0, dp, pp, 0, name, -1, -1, start, end - start, "main", group)
        for dp, pp, ready in [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 4.0), (1, 1, 3.0)]
        for name, start, end, group in [("work", 0.0, ready, ""), ("meet", ready, 4.5, "g")]
    ]
    trace = assemble(OpTable.from_rows("x", rows), JobShape("j", dp=2, pp=2))
    found = durations(trace, recorded_order(trace)).run_s
    np.testing.assert_allclose(found[[MEET_A, MEET_B]], 0.5)
    np.testing.assert_allclose(found[[WORK_A, WORK_B], :, 0], [[1.0, 4.0], [2.0, 3.0]])
