"""Recorded hosts, from files of the PyTorch profiler to the report."""

import json

import pytest

from prism_jax.core.errors import DataError
from prism_jax.host.host_of_trace import host_of_trace

ALONE_US = 100  # a collective that waits for nobody


def event(name, category, start, duration, link=-1):
    args = {"correlation": link}
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": duration, "tid": 1, "args": args}


def write(folder, name, found):
    text = json.dumps({"schemaVersion": 1, "traceEvents": found}).replace("Infinity", "1e999")
    (folder / name).write_text(text)
    return folder / name


def launch(start, link, name, duration, on=7, delay=5):
    """A call and the kernel that it starts."""
    kernel = event(name, "kernel", start + delay, duration, link)
    kernel["args"]["stream"] = on
    return [event("cudaLaunchKernel", "cuda_runtime", start, 2, link), kernel]


def profile(folder, rank, late_us=0, zero_ns=0, calls=True):
    """A step of 10 ms: one operator launches a kernel of 1 ms and a collective, which waits for the last rank."""
    start = 1000 + late_us
    found = [event("ProfilerStep#1", "user_annotation", start, 10_000 - late_us)]
    if calls:
        found += [
            event("aten::mm", "cpu_op", start + 50, 200),
            event("aten::detail", "cpu_op", start + 60, 20),
            event("cudaLaunchKernel", "cuda_runtime", start + 100, 10, 1),
            event("gemm", "kernel", start + 105, 1000, 1),
            event("cudaLaunchKernel", "cuda_runtime", start + 200, 10, 2),
            event("ncclKernel_AllReduce", "kernel", start + 1105, ALONE_US + 500 - late_us, 2),
        ]
    document = {"schemaVersion": 1, "baseTimeNanoseconds": zero_ns, "traceEvents": found}
    (folder / f"rank{rank}.json").write_text(json.dumps(document))


def test_the_rank_that_comes_last_waits_for_nobody(tmp_path):
    profile(tmp_path, 0)
    profile(tmp_path, 1, late_us=500)
    report = host_of_trace(tmp_path)
    early, late = report.ranks
    assert (early.waited_s, late.waited_s) == pytest.approx((500e-6, 0.0), abs=1e-9)
    assert early.device_work_s == pytest.approx(1e-3 + ALONE_US * 1e-6)
    assert early.traversed_s == pytest.approx(10e-3, rel=1e-3)
    assert report.host_bound
    assert (report.device_alone_s, report.host_alone_s) == pytest.approx((1.1e-3, 10e-3), rel=1e-2)


def test_clocks_of_files_with_different_zeros_are_one(tmp_path):
    profile(tmp_path, 0, zero_ns=1_700_000_000_000_000_000)
    profile(tmp_path, 1, zero_ns=1_700_000_000_000_500_000)
    waited = [one.waited_s for one in host_of_trace(tmp_path).ranks]
    assert waited == pytest.approx([500e-6, 0.0], abs=1e-6)


def test_overheads_stand_beside_their_meaning(tmp_path):
    profile(tmp_path, 0)
    found = host_of_trace(tmp_path / "rank0.json")
    assert found.overheads["T2"].mean_s == pytest.approx(50e-6)
    assert found.overheads["T5"].mean_s == pytest.approx(90e-6)
    assert "all ranks" in found.notes[0]


def test_profiles_without_calls_are_refused(tmp_path):
    profile(tmp_path, 0, calls=False)
    with pytest.raises(DataError, match=r"rank0\.json: no calls of the CUDA driver"):
        host_of_trace(tmp_path / "rank0.json")


def test_a_profile_without_annotated_steps_is_one_step(tmp_path):
    found = [event("aten::mm", "cpu_op", 100, 50), *launch(110, 1, "gemm", 400)]
    report = host_of_trace(write(tmp_path, "one.json", found))
    assert report.n_step == 1
    assert report.ranks[0].step_s == pytest.approx(415e-6)  # until the kernel is done
    assert report.ranks[0].traversed_s == pytest.approx(415e-6, rel=1e-3)
    assert not report.host_bound
    assert report.notes == ()  # no collective, so that other ranks do not matter


def test_work_that_piles_up_over_steps_is_counted_until_it_is_done(tmp_path):
    """Hosts take 100 us per step, the device 300."""
    found = []
    for at in range(4):
        found.append(event(f"ProfilerStep#{at}", "user_annotation", 100 * at, 100))
        found += launch(100 * at + 10, at, "gemm", 300, delay=5 + 200 * at)
    found.append(event("ProfilerStep#4", "user_annotation", 400, 1))  # the profiler's last starts nothing
    report = host_of_trace(write(tmp_path, "four.json", found))
    assert report.n_step == 4
    assert report.ranks[0].step_s == pytest.approx((15 + 4 * 300) / 4 * 1e-6)
    assert report.ranks[0].error == pytest.approx(0.0, abs=1e-3)
    assert not report.host_bound


def test_streams_at_the_side_run_beside_compute(tmp_path):
    found = [event("ProfilerStep#0", "user_annotation", 0, 50)]
    found += launch(10, 1, "gemm", 500) + launch(20, 2, "permute", 300, on=22)
    report = host_of_trace(write(tmp_path, "side.json", found))
    assert report.ranks[0].traversed_s == pytest.approx(515e-6, rel=1e-3)
    assert report.ranks[0].device_work_s == pytest.approx(800e-6)


def test_waits_before_a_collective_do_not_hold_up_compute(tmp_path):
    """Two collectives in a row behind compute: the second waits for the first, the kernel after both for neither."""
    found = [event("ProfilerStep#0", "user_annotation", 0, 60)]
    for at in (0, 1):
        found.append(event("nccl:all_reduce", "cpu_op", 10 + 20 * at, 10))
        found.append(event("cudaStreamWaitEvent", "cuda_runtime", 11 + 20 * at, 1))
        found += launch(13 + 20 * at, at, "ncclKernel_AllReduce", 1000, on=20, delay=5 + 980 * at)
    found += launch(50, 2, "gemm", 100)
    report = host_of_trace(write(tmp_path, "ddp.json", found))
    assert report.ranks[0].error == pytest.approx(0.0, abs=1e-3)
    assert report.ranks[0].traversed_s == pytest.approx(2018e-6, rel=1e-3)
    assert report.device_alone_s == pytest.approx(2005e-6, rel=1e-3)


def test_ranks_must_have_recorded_the_same_number_of_steps(tmp_path):
    for rank in (0, 1):
        found = []
        for at in range(1 + rank):
            found += [
                event(f"ProfilerStep#{at}", "user_annotation", 100 * at, 90),
                *launch(100 * at + 10, at, "gemm", 5),
            ]
        write(tmp_path, f"rank{rank}.json", found)
    with pytest.raises(DataError, match="recorded 1, 2 steps"):
        host_of_trace(tmp_path)


def test_impossible_times_are_left_out(tmp_path):
    found = [*launch(10, 1, "gemm", 5), event("aten::mm", "cpu_op", 0, float("inf"))]
    assert host_of_trace(write(tmp_path, "odd.json", found)).ranks[0].step_s < 1.0
