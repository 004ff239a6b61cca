"""GPU kernels in profiles: runs of compute, NCCL kernels as groups, one clock; on a made-up FSDP job and on small files."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.profiles.kineto import read_kineto
from prism_jax.trace.assemble import assemble
from prism_jax.trace.trace import JobShape, OpTable
from tests.support.kineto_profiles import (
    AHEAD_US,
    BASE_NS,
    Machine,
    fsdp_job,
    kernel,
    profile,
    span,
    step,
    timed,
    write,
)


def same(one: OpTable, other: OpTable) -> bool:
    """Whether two tables hold the same ops, in whatever order."""
    return (
        sorted(rows(one)) == sorted(rows(other))
        and one.notes == other.notes
        and one.clock_error_s == other.clock_error_s
    )


def rows(table: OpTable) -> list[tuple]:
    texts = [
        [table.op_types[i] for i in table.op_type],
        [table.streams[i] for i in table.stream],
        [table.groups[i] if i >= 0 else "" for i in table.group],
    ]
    numbers = [
        getattr(table, n).tolist() for n in ("step", "dp", "pp", "tp", "micro_batch", "chunk", "rank", "duration_s")
    ]
    return list(zip(*numbers, *texts, table.start_s.tolist(), strict=True))


@pytest.fixture(scope="module")
def machine() -> Machine:
    machine = Machine([0.0, 2.5])
    for number in range(3, 8):
        machine.fsdp_step(number)
    return machine


@pytest.fixture(scope="module")
def read(machine, tmp_path_factory) -> tuple[OpTable, JobShape]:
    files = [profile(machine.events[rank], rank) for rank in range(2)]
    return read_kineto(write(tmp_path_factory.mktemp("fsdp"), files))


def test_every_step_of_an_fsdp_job_has_the_same_skeleton(read):
    trace = assemble(*read)
    assert trace.job == JobShape("PyTorch profile", dp=2)
    assert trace.steps.tolist() == [3, 4, 5, 6, 7]
    kinds = [op.op_type for op in trace.ops]
    assert kinds.count("all_gather") == 3
    assert kinds.count("reduce_scatter") == 3
    assert kinds.count("compute") == 6  # two kernels each; the last forward and first backward have no mark between


def test_all_compute_is_kept_and_no_run_waits(machine, read):
    table, _ = read
    compute = table.op_type == table.op_types.index("compute")
    busy = table.duration_s[compute].sum()
    idle_between_kernels = 1.1e-6 * compute.sum() * 4
    assert machine.work_us.sum() * 1e-6 <= busy <= machine.work_us.sum() * 1e-6 + idle_between_kernels


def test_members_of_a_group_are_matched_on_one_clock(read):
    table, job = read
    trace = assemble(table, job)
    for index, op in enumerate(trace.ops):
        assert bool(op.group) == (op.op_type != "compute")
        if op.group:
            assert op.group == f"{op.op_type} {op.seq} of 0 [0, 1]"
            assert np.ptp(trace.end_s[index], axis=0).max() < 2e-5
    assert table.clock_error_s < 1e-5


def test_streams_are_named_by_what_they_do(read):
    assert set(read[0].streams) == {"compute", "communication"}


def test_the_order_of_events_and_files_does_not_matter(machine, read, tmp_path):
    rng = np.random.default_rng(0)
    files = [profile([events[i] for i in rng.permutation(len(events))], r) for r, events in enumerate(machine.events)]
    table, job = read_kineto(write(tmp_path, files)[::-1])
    assert same(table, read[0])
    assert job == read[1]


def test_gzip_makes_no_difference(machine, read, tmp_path):
    table, _ = read_kineto(write(tmp_path, [profile(machine.events[r], r) for r in range(2)], packed=True))
    assert same(table, read[0])


def test_the_base_time_counts_and_may_be_absent(machine, read, tmp_path):
    later = [profile(machine.events[r], r, base_ns=BASE_NS + r * 10**9) for r in range(2)]
    table, _ = read_kineto(write(tmp_path, later))
    assert any("up to 3.5 s" in note for note in table.notes)
    np.testing.assert_allclose(table.start_s, read[0].start_s, atol=1e-6)
    table, _ = read_kineto(write(tmp_path, [profile(machine.events[r], r, base_ns=None) for r in range(2)]))
    np.testing.assert_allclose(table.start_s, read[0].start_s, atol=1e-6)


@settings(max_examples=20)
@given(offset=st.floats(-1e4, 1e4), seed=st.integers(0, 99))
def test_any_offset_is_taken_out(offset, seed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("offset")
    table, _ = read_kineto(write(folder, fsdp_job([0.0, offset], n_step=3, seed=seed)))
    plain, _ = read_kineto(write(folder, fsdp_job([0.0, 0.0], n_step=3, seed=seed)))
    np.testing.assert_allclose(table.start_s, plain.start_s, atol=1e-8)


def test_kernels_without_launches_need_gpu_steps(tmp_path):
    with pytest.raises(DataError, match="neither their launches .* ProfilerActivity.CPU"):
        read_kineto(write(tmp_path, fsdp_job([0.0, 0.0], launches=False)))


def test_gpu_steps_say_where_unlaunched_kernels_belong(tmp_path):
    steps = [step(n, 100 * n, 100) for n in (1, 2)]
    gpu = [span("gpu_user_annotation", f"ProfilerStep#{n}", 130 * n, 120, tid=7) for n in (1, 2)]
    kernels = [span("kernel", "gemm", 130 * n + 10, 90, tid=7, stream=7) for n in (0, 1, 2)]
    table, _ = read_kineto(write(tmp_path, [profile(steps + gpu + kernels)]))
    assert table.step.tolist() == [1, 2]
    assert any("launches were not recorded" in note for note in table.notes)


def test_kernels_belong_to_the_step_that_launched_them(tmp_path):
    events = [step(1, 0, 100), step(2, 100, 100)]
    for link, (launched, start) in enumerate([(50, 60), (90, 150), (150, 300), (-5, 20)]):
        events.append(span("cuda_runtime", "cudaLaunchKernel", launched, 1, correlation=link))
        events.append(span("kernel", "gemm", start, 10, stream=7, correlation=link))
    table, _ = read_kineto(write(tmp_path, [profile(events)]))
    assert table.step.tolist() == [1, 2]
    np.testing.assert_allclose(table.duration_s, [100e-6, 10e-6])


def test_ranks_of_smaller_groups_are_tied_stages(tmp_path):
    """Four ranks, reductions in pairs [0, 1] and [2, 3] of the same name, then a send from 1 to 2."""
    files = []
    for rank in range(4):
        first = 2 * (rank // 2)
        names = {"Process Group Name": "1", "Process Group Ranks": f"[{first}, {first + 1}]", "Group size": 2}
        events = [step(n, 1000 * n, 1000) for n in (1, 2)]
        for n in (1, 2):
            events += kernel(1000 * n + 100, "gemm", n * 10)
            events += kernel(1000 * n + 300, "ncclKernel_AllReduce_RING_LL_Sum_float", n * 10 + 1, **names)
            if rank in (1, 2):
                p2p = (
                    {"Collective name": "send", "Dst Rank": 2}
                    if rank == 1
                    else {"Collective name": "recv", "Src Rank": 1}
                )
                events += kernel(1000 * n + 600, "ncclDevKernel_SendRecv", n * 10 + 2, **p2p)
        files.append(profile(events, rank, 4))
    table, job = read_kineto(write(tmp_path, files))
    assert job == JobShape("PyTorch profile", pp=4)
    members: dict[str, list[tuple[int, str]]] = {}
    for op in assemble(table, job).ops:
        members.setdefault(op.group, []).append((op.stage, op.op_type))
    members.pop("")
    assert members == {
        "all_reduce 0 of 1 [0, 1]": [(0, "all_reduce"), (1, "all_reduce")],
        "all_reduce 0 of 1 [2, 3]": [(2, "all_reduce"), (3, "all_reduce")],
        "1->2 0": [(1, "send"), (2, "recv")],
    }
    assert not any("could not be compared" in note for note in table.notes)


def test_groups_nobody_names_tie_ranks_only_if_all_do_the_same(tmp_path):
    files = []
    for rank in range(2):
        events = [step(1, 0, 1000)]
        for index in range(1 + rank):
            events += kernel(100 * index + 100, "ncclDevKernel_AllReduce_Sum_f32", index)
        files.append(profile(events, rank))
    table, job = read_kineto(write(tmp_path, files))
    assert job is not None
    assert job.pp == 2
    assert (table.group == -1).all()
    assert any("does not say with whom" in note for note in table.notes)
    assert any("could not be compared" in note for note in table.notes)


def test_two_groups_for_one_kind_are_two_op_types(tmp_path):
    files = []
    for rank in range(2):
        events = [step(1, 0, 1000)]
        for index, group in enumerate(("0", "5", "0")):
            more = {"Process Group Name": group, "Group size": 2, "Process Group Ranks": "[0, 1]"}
            events += kernel(100 * index + 100, "ncclDevKernel_AllGather", index, **more)
        files.append(profile(events, rank))
    table, job = read_kineto(write(tmp_path, files))
    assert [str(op) for op in assemble(table, job).ops] == [
        "all_gather 0 [0, 1] 0 of stage 0",
        "all_gather 5 [0, 1] 0 of stage 0",
        "all_gather 0 [0, 1] 1 of stage 0",
    ]


def test_a_wait_ends_a_run_and_other_streams_run_beside(tmp_path):
    events = [step(1, 0, 1000)]
    for index, (stream, start, dur) in enumerate([(7, 10, 50), (9, 20, 15), (7, 70, 50), (7, 400, 50)]):
        events += kernel(start, "gemm", index, stream=stream, dur=dur)
    events.append(span("cuda_runtime", "cudaStreamWaitEvent", 399, 0.1, correlation=99))
    table, _ = read_kineto(write(tmp_path, [profile(events, world=1)]))
    assert timed(table) == [("compute", 0.0, 110.0), ("compute", 390.0, 50.0), ("compute 2", 10.0, 15.0)]


def test_the_host_runs_ahead_in_the_made_up_job():
    """The builder itself: launches come before the kernels they start, or this file tests something else."""
    events = fsdp_job([0.0, 0.0])[0]["traceEvents"]
    launched = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") == "cuda_runtime"}
    lead = [e["ts"] - launched[e["args"]["correlation"]] for e in events if e.get("cat") == "kernel"]
    assert min(lead) > 0
    assert np.median(lead) > 10 * AHEAD_US
