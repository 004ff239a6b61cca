"""Rows become dense arrays: in whatever order they come, without incomplete steps, which are named."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.trace.assemble import assemble
from prism_jax.trace.trace import JobShape, OpRow, OpTable, Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import FIRST_STEP, Recording, draws, record

JOB = PipelineJob(pp=2, dp=2, n_micro_batch=3)
SECOND = FIRST_STEP + 1


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(JOB, 3, *draws(3))


def trace_of(rows: list[OpRow], shape: JobShape) -> Trace:
    return assemble(OpTable.from_rows("ops.csv", rows), shape)


def without(recording: Recording, drop: Callable[[OpRow], bool]) -> Trace:
    return trace_of([row for row in recording.rows if not drop(row)], recording.shape)


def assert_same(a: Trace, b: Trace) -> None:
    assert (a.ops, a.job, a.notes) == (b.ops, b.job, b.notes)
    for x, y in ((a.start_s, b.start_s), (a.end_s, b.end_s), (a.steps, b.steps), (a.rank, b.rank)):
        np.testing.assert_array_equal(x, y)


def test_arrays_hold_the_recorded_times(recording: Recording) -> None:
    """Every cell is a row; times count from the first start of the step."""
    trace = recording.trace()
    assert trace.start_s.shape == (len(recording.rows) // (2 * 3), 2, 3)
    assert (trace.n_replica, trace.n_stage, trace.steps.tolist()) == (2, 2, [10, 11, 12])
    first = {s: min(r.start_s for r in recording.rows if r.step == s) for s in trace.steps}
    for row in recording.rows:
        same = [o for o, op in enumerate(trace.ops) if (op.op_type, op.stage) == (row.op_type, row.pp)]
        starts = trace.start_s[same, row.dp, row.step - FIRST_STEP]
        op = same[int(np.argmin(np.abs(starts + first[row.step] - row.start_s)))]
        assert (trace.ops[op].micro_batch, trace.ops[op].chunk) == (row.micro_batch, row.chunk)
        start, end = trace.start_s[op, row.dp, row.step - FIRST_STEP], trace.end_s[op, row.dp, row.step - FIRST_STEP]
        assert start + first[row.step] == pytest.approx(row.start_s, abs=1e-9)
        assert end - start == pytest.approx(row.duration_s, abs=1e-9)
    np.testing.assert_allclose(trace.step_s, recording.step_s, atol=1e-9)


def test_skeleton_is_sorted_by_stage_and_time(recording: Recording) -> None:
    trace = recording.trace()
    stage = np.array([op.stage for op in trace.ops])
    assert (np.diff(stage) >= 0).all()
    assert all((np.diff(trace.start_s[stage == s, 0, 0]) >= 0).all() for s in (0, 1))


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000))
def test_order_of_rows_does_not_matter(recording: Recording, seed: int) -> None:
    shuffled = [recording.rows[i] for i in np.random.default_rng(seed).permutation(len(recording.rows))]
    assert_same(trace_of(shuffled, recording.shape), recording.trace())


def test_step_that_lacks_an_op_is_left_out_and_named(recording: Recording) -> None:
    trace = without(recording, lambda r: (r.step, r.dp, r.pp, r.op_type) == (SECOND, 1, 1, "optimizer"))
    assert trace.steps.tolist() == [10, 12]
    assert trace.notes == (
        "1 of 3 steps left out, because not all workers did the same ops: "
        "in step 11 dp rank 1 lacks optimizer 0 of stage 1",
    )
    assert_same(recording.trace().choose(steps=np.array([0, 2])), replace(trace, notes=()))


def test_step_with_an_op_of_its_own_is_left_out_and_named(recording: Recording) -> None:
    more = recording.rows[0]._replace(step=SECOND, op_type="evaluation", start_s=0.0)
    trace = trace_of([*recording.rows, more], recording.shape)
    assert trace.steps.tolist() == [10, 12]
    assert "in step 11 dp rank 0 alone has evaluation 0 of stage 0" in trace.notes[0]


def test_op_of_most_workers_and_steps_belongs_to_the_skeleton() -> None:
    """Seen in 3 of 4 cells it is expected everywhere; seen in 1 of 4 nowhere."""
    rows = [OpRow(s, 0, 0, 0, "work", -1, -1, 0.0, 1.0) for s in range(4)]
    often = [OpRow(s, 0, 0, 0, "log", -1, -1, 1.0, 0.1) for s in range(3)]
    assert trace_of([*rows, *often], JobShape("j")).steps.tolist() == [0, 1, 2]
    assert trace_of([*rows, *often[:1]], JobShape("j")).steps.tolist() == [1, 2, 3]


def test_no_complete_step_is_an_error() -> None:
    """In every step another one of three replicas lacks the op."""
    rows = [OpRow(s, d, 0, 0, "work", -1, -1, 0.0, 1.0) for s in range(4) for d in range(3) if d != s % 3]
    with pytest.raises(
        DataError, match="ops.csv: no step is complete on every worker. 4 of 4 steps left out.* in step 0"
    ):
        trace_of(rows, JobShape("j", dp=3))


@pytest.mark.parametrize(("field", "degree"), [("dp", "dp 2"), ("pp", "pp 2"), ("tp", "tp 1")])
def test_rank_outside_the_degrees_names_row_and_field(recording: Recording, field: str, degree: str) -> None:
    rows = list(recording.rows)
    rows[4] = rows[4]._replace(**{field: 2})
    with pytest.raises(DataError, match=rf"ops.csv: row 5 {field}: 2, but the job has {degree} \(counted from 0\)"):
        trace_of(rows, recording.shape)


def test_stage_that_was_never_recorded_is_named(recording: Recording) -> None:
    with pytest.raises(DataError, match="nothing was recorded on dp rank 1, stage 0 .1 of 4 workers"):
        without(recording, lambda r: (r.dp, r.pp) == (1, 0))


def test_some_of_the_replicas_may_have_been_recorded(recording: Recording) -> None:
    """Their dp ranks stay what they are in the ranks; a note says that others are missing."""
    trace = trace_of([row._replace(dp=2 * row.dp + 1) for row in recording.rows], JobShape("j", dp=5, pp=2))
    np.testing.assert_array_equal(trace.start_s, recording.trace().start_s)
    assert trace.rank.tolist() == [[1, 6], [3, 8]]
    assert trace.notes == ("2 of 5 data-parallel ranks were recorded; the others are taken to be like them",)


def test_tensor_parallel_peers_count_as_one_worker(recording: Recording) -> None:
    """From the first start to the last end of the two."""
    peers = [row._replace(tp=1, start_s=row.start_s + 0.25, duration_s=row.duration_s + 0.5) for row in recording.rows]
    shape = JobShape("j", dp=2, pp=2, tp=2)
    both, alone = trace_of([*recording.rows, *peers], shape), recording.trace()
    assert both.ops == alone.ops
    np.testing.assert_allclose(both.start_s, alone.start_s, atol=1e-9)
    np.testing.assert_allclose(both.end_s, alone.end_s + 0.75, atol=1e-9)


def test_ranks_are_recorded_ones_or_counted(recording: Recording) -> None:
    """Megatron counts tensor parallel fastest, then data parallel, then stages."""
    counted = trace_of(recording.rows, JobShape("j", dp=2, pp=2, tp=4, sp=2))
    assert counted.rank.tolist() == [[0, 16], [8, 24]]
    rows = [row._replace(rank=100 + 10 * row.dp + row.pp) for row in recording.rows]
    assert trace_of(rows, recording.shape).rank.tolist() == [[100, 101], [110, 111]]


def test_a_trace_can_be_cut(recording: Recording) -> None:
    trace = recording.trace()
    cut = trace.choose(steps=np.array([2, 0]), replicas=np.array([1]))
    assert (cut.steps.tolist(), cut.n_replica, cut.rank.tolist()) == ([12, 10], 1, trace.rank[1:].tolist())
    np.testing.assert_array_equal(cut.end_s, trace.end_s[:, 1:, [2, 0]])


def test_too_large_a_table_is_refused() -> None:
    rows = [OpRow(s, 0, 0, 0, f"op {s}", -1, -1, 0.0, 1.0) for s in range(20_000)]
    with pytest.raises(DataError, match="20,000 ops x 1 replicas x 20,000 steps are too many"):
        trace_of(rows, JobShape("j"))
