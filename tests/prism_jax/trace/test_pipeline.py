"""The pipeline of a trace and its table of operations."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.assemble import assemble
from prism_jax.trace.dependencies import durations
from prism_jax.trace.pipeline import is_pipeline, pipeline_dependencies
from prism_jax.trace.trace import NONE, JobShape, OpRow, OpTable, Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import STEP_APART_S, Recording, draws, record

JOBS = [
    *[PipelineJob(pp, dp, 5) for pp, dp in [(1, 1), (2, 1), (4, 2)]],
    *[PipelineJob(pp, dp, 5, overlaps=True) for pp, dp in [(1, 4), (2, 3), (3, 2)]],
    PipelineJob(2, 2, 1),
    PipelineJob(4, 1, 2),
    PipelineJob(3, 2, 5, 1, "recorded"),
    *[PipelineJob(pp, 2, 2 * pp, 2, idle, True) for pp in (2, 3, 4) for idle in ("absent", "inner", "recorded")],
    PipelineJob(2, 1, 4, 3, "absent"),
    PipelineJob(2, 1, 2, 2, "absent"),
]  # fmt: skip


@pytest.mark.parametrize("host_s", [0.0, 0.003])
@pytest.mark.parametrize("job", JOBS, ids=lambda j: f"{j.pp}x{j.virtual_stages}-{j.dp}-{j.idle_transfers}")
def test_work_and_gaps_of_the_simulator_are_found(job: PipelineJob, host_s: float) -> None:
    """What the profiler wrote down contains the waiting; what the rules leave of it is the work that went in."""
    recording = record(job, 2, *draws(11, host_s=host_s))
    trace = recording.trace()
    found = durations(trace, pipeline_dependencies(trace))
    run_s, gap_s = recording.truth(trace)
    np.testing.assert_allclose(found.run_s, run_s, atol=1e-10)
    np.testing.assert_allclose(found.gap_s, gap_s, atol=1e-10)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record(PipelineJob(3, 2, 4), 2, *draws(5))


def changed(recording: Recording, keep: Callable[[OpRow], bool], more: list[OpRow] | None = None) -> Trace:
    rows = [row for row in recording.rows if keep(row)]
    return assemble(OpTable.from_rows("ops.csv", [*rows, *(more or [])]), recording.shape)


def test_replicas_meet_where_the_framework_synchronises_them(recording: Recording) -> None:
    trace = recording.trace()
    meets = pipeline_dependencies(trace).meets_replicas
    types = {trace.ops[op].op_type for op in np.flatnonzero(meets)}
    assert types == {"params-all-gather", "grads-reduce-scatter", "optimizer-clip-main-grad"}


def test_sequence_parallel_peers_share_gradients_with_one_replica() -> None:
    """Collectives of a job with dp 1 and sp 2 are transfers; with sp 1 there is nobody to meet."""
    recording = record(PipelineJob(2, 2, 3), 1, *draws(5))
    alone = recording.trace().choose(replicas=np.array([0]))
    for sp, expected in ((2, 2), (1, 0)):
        trace = replace(alone, job=replace(alone.job, dp=1, sp=sp))
        needs = pipeline_dependencies(trace)
        found = [op for op in needs.members() if trace.ops[op[0]].op_type == "grads-reduce-scatter"]
        assert len(found) == expected


def test_transfers_that_were_never_launched_are_ignored(recording: Recording) -> None:
    """Profilers record receives behind all compute, and sends in front of it."""
    extra = [
        OpRow(row.step, row.dp, row.pp, 0, op_type, -1, -1, start, 1e-4)
        for row in recording.rows
        if row.op_type == "optimizer"
        for op_type, start in (("forward-recv", row.start_s), ("backward-send", row.step * STEP_APART_S))
    ]
    trace = changed(recording, lambda row: True, extra)
    found = durations(trace, pipeline_dependencies(trace)).run_s
    keys = {
        (op.op_type, op.stage, op.micro_batch): i for i, op in enumerate(recording.trace().ops) if op.micro_batch >= 0
    }
    truth, _ = recording.truth(recording.trace())
    for index, op in enumerate(trace.ops):
        if op.micro_batch >= 0:
            np.testing.assert_allclose(found[index], truth[keys[op.op_type, op.stage, op.micro_batch]], atol=1e-10)
    transfers = [i for i, op in enumerate(trace.ops) if op.op_type in ("forward-recv", "backward-send") and op.stage]
    assert found[transfers].max() < 0.05  # none contains the wait for another


@pytest.mark.parametrize(
    ("drop", "message"),
    [
        (lambda r: r.op_type == "forward-send" and r.pp == 0, "forward-send 0 of stage 0 has no counterpart: only"),
        (lambda r: r.op_type == "backward-recv" and r.pp == 1, "backward-send 0 of stage 2 has no counterpart"),
        (lambda r: r.op_type.endswith("-compute") and r.pp == 2, "stage 2 has no forward-compute or backward-compute"),
    ],
    ids=["sends", "receives", "compute"],
)  # fmt: skip
def test_missing_peer_or_compute_names_stage_and_op(
    recording: Recording, drop: Callable[[OpRow], bool], message: str
) -> None:
    with pytest.raises(DataError, match=f"ops.csv: {message}"):
        pipeline_dependencies(changed(recording, lambda row: not drop(row)))


@pytest.mark.parametrize(("stage", "op_type"), [(0, "forward-send"), (1, "forward-recv"), (1, "backward-send")])
def test_a_transfer_too_few_names_both_counts(recording: Recording, stage: int, op_type: str) -> None:
    seen: dict[tuple, int] = {}

    def keep(row: OpRow) -> bool:
        place = (row.step, row.dp, row.pp, row.op_type)
        seen[place] = seen.get(place, 0) + 1
        return place[2:] != (stage, op_type) or seen[place] != 2

    kind = op_type.split("-")[0]
    with pytest.raises(DataError, match=f"stage {stage} has 3 {op_type} for 4 {kind}-compute, of which 4 need one"):
        pipeline_dependencies(changed(recording, keep))


def test_known_op_types_make_a_pipeline() -> None:
    trace = record(PipelineJob(1, 1, 1), 1, *draws(0)).trace()
    assert is_pipeline(trace)
    rows = [OpRow(0, 0, 0, 0, name, -1, -1, 0.0, 1.0) for name in ("forward-compute", "my-kernel")]
    assert not is_pipeline(assemble(OpTable.from_rows("x", rows), trace.job))
    assert not is_pipeline(assemble(OpTable.from_rows("x", [rows[0]._replace(op_type="optimizer")]), trace.job))


def test_compute_alone_waits_for_the_neighbouring_stage(recording: Recording) -> None:
    """Without any send or receive the stages are still tied: what remains as a gap is the transfers, which are short."""
    trace = changed(recording, lambda row: not row.op_type.endswith(("send", "recv")))
    needs = pipeline_dependencies(trace)
    compute = [op for op, found in enumerate(trace.ops) if found.op_type.endswith("-compute") and found.micro_batch > 0]
    crossing = [any(trace.ops[need].stage != trace.ops[op].stage for need in needs.after[op]) for op in compute]
    ends = {"forward-compute": 0, "backward-compute": 2}  # stage that has nobody to wait for
    assert crossing == [trace.ops[op].stage != ends[trace.ops[op].op_type] for op in compute]
    gaps = durations(trace, needs).gap_s[compute]
    assert gaps.max() < 0.1 * np.ptp(trace.end_s)


# --- Tables of recorded ops: names become numbers, and impossible numbers are refused with their row -----------------


ROWS = [
    OpRow(7, 0, 0, 0, "forward-compute", 0, 0, 1.0, 0.5),
    OpRow(7, 1, 0, 0, "all-reduce", NONE, NONE, 2.0, 0.25, "comm", "step 7", rank=3),
]


def test_rows_become_columns() -> None:
    table = OpTable.from_rows("ops.csv", ROWS, clock_error_s=1e-3, notes=("a note",))
    assert len(table) == 2
    assert [table.op_types[i] for i in table.op_type] == ["forward-compute", "all-reduce"]
    assert [table.streams[i] for i in table.stream] == ["", "comm"]
    assert table.group.tolist() == [NONE, table.groups.index("step 7")]
    assert (table.rank.tolist(), table.dp.tolist()) == ([NONE, 3], [0, 1])
    assert (table.clock_error_s, table.notes) == (1e-3, ("a note",))
    np.testing.assert_array_equal(table.duration_s, [0.5, 0.25])


@pytest.mark.parametrize(
    ("field", "value"),
    [("duration_s", -0.1), ("duration_s", np.nan), ("duration_s", 1e9), ("start_s", np.inf), ("dp", -1), ("tp", 2e6),
     ("step", -1), ("chunk", -2), ("rank", -2)],
)  # fmt: skip
def test_impossible_number_names_row_and_field(field: str, value: float) -> None:
    rows = [ROWS[0], ROWS[1]._replace(**{field: value})]
    with pytest.raises(DataError, match=f"ops.csv: row 2 {field}: .* is not between"):
        OpTable.from_rows("ops.csv", rows)


def test_no_rows_are_an_error() -> None:
    with pytest.raises(DataError, match="ops.csv: no recorded ops"):
        OpTable.from_rows("ops.csv", [])


def test_world_size_is_the_product_of_the_degrees() -> None:
    assert JobShape("j", dp=3, pp=4, tp=2, sp=5, virtual_stages=7).world_size == 120
