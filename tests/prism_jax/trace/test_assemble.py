"""Traces assembled of recorded operations, their durations and their order."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.trace.assemble import assemble
from prism_jax.trace.dependencies import CLOCK_FAULT_S, Dependencies, Lane, durations, last_arrival, ready_s
from prism_jax.trace.pipeline import dependencies, recorded_order
from prism_jax.trace.trace import JobShape, OpRow, OpTable, Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import FIRST_STEP, Recording, draws, record, skeleton

JOB = PipelineJob(pp=2, dp=2, n_micro_batch=3)
SECOND = FIRST_STEP + 1


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(JOB, 3, *draws(3))


def trace_of(rows: list[OpRow], shape: JobShape = JobShape("j")) -> Trace:
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
        trace_of(rows)


# --- Work and gaps by hand: transfers count from the last arrival, and clocks that disagree a little do no harm ------


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
    trace = trace_of(rows, JobShape("j", pp=2))
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
    trace = trace_of(rows, JobShape("j", dp=2, pp=2))
    found = durations(trace, recorded_order(trace)).run_s
    np.testing.assert_allclose(found[[MEET_A, MEET_B]], 0.5)
    np.testing.assert_allclose(found[[WORK_A, WORK_B], :, 0], [[1.0, 4.0], [2.0, 3.0]])


# --- Traces whose op types say nothing: streams run in order, named groups meet, circles are refused -----------------


def row(rank: int, op_type: str, start_s: float, stream: str = "", group: str = "", replica: int = 0) -> OpRow:
    return OpRow(0, replica, rank, 0, op_type, -1, -1, start_s, 0.5, stream, group)


def after(trace: Trace) -> dict[str, list[str]]:
    needs = recorded_order(trace)
    return {str(op): [str(trace.ops[u]) for u in needs.after[i]] for i, op in enumerate(trace.ops)}


def test_ops_of_a_stream_run_one_after_another() -> None:
    """Whatever their type, and independently of other streams."""
    trace = trace_of([row(0, "a", 0.0, "s"), row(0, "b", 1.0, "t"), row(0, "c", 2.0, "s"), row(0, "a", 3.0, "t")])
    assert after(trace) == {
        "a 0 of stage 0": [],
        "b 0 of stage 0": [],
        "c 0 of stage 0": ["a 0 of stage 0"],
        "a 1 of stage 0": ["b 0 of stage 0"],
    }
    assert recorded_order(trace).lanes == (Lane(0, 0, "s"), Lane(0, 0, "t"))


def test_without_streams_every_op_type_is_one() -> None:
    trace = trace_of([row(0, "a", 0.0), row(0, "b", 1.0), row(0, "a", 2.0)])
    assert after(trace) == {"a 0 of stage 0": [], "b 0 of stage 0": [], "a 1 of stage 0": ["a 0 of stage 0"]}


def test_groups_meet_across_ranks_and_replicas() -> None:
    rows = [row(r, "ar", 1.0 + r, "comm", "g", d) for r in range(2) for d in range(2)]
    trace = trace_of(
        rows + [row(r, "mm", 0.0, "main", "", d) for r in range(2) for d in range(2)],
        JobShape("j", dp=2, pp=2),
    )
    needs = recorded_order(trace)
    members = [[str(trace.ops[op]) for op in ops] for ops in needs.members()]
    assert members == [["ar 0 of stage 0", "ar 0 of stage 1"]]
    np.testing.assert_array_equal(needs.meets_replicas, needs.group >= 0)
    alone = recorded_order(trace.choose(replicas=np.array([0])))
    assert not alone.meets_replicas.any()
    assert (alone.group >= 0).sum() == 2


def test_groups_entered_in_another_order_are_a_circle() -> None:
    """Rank 0 enters g before h, rank 1 h before g, each on one stream: nobody could have gone on."""
    rows = [
        row(0, "ar", 0.0, "s", "g"),
        row(0, "ar", 1.0, "s", "h"),
        row(1, "ar", 0.0, "s", "h"),
        row(1, "ar", 1.0, "s", "g"),
    ]
    with pytest.raises(DataError, match="ops.csv: the recorded ops wait for each other: ar 0 of stage 0 waits for"):
        recorded_order(trace_of(rows, JobShape("j", pp=2)))


def test_rules_are_used_where_the_op_types_are_known() -> None:
    trace, by_rule = skeleton(PipelineJob(2, 2, 3))
    assert dependencies(trace).after == by_rule.after
    other = trace_of([row(0, "a", 0.0), row(0, "a", 2.0)])
    assert dependencies(other).after == recorded_order(other).after
