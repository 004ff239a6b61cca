"""Recorded hosts, from files of the PyTorch profiler to the report."""

import json

import pytest

from prism_jax.app import host_of_trace
from prism_jax.errors import DataError

ALONE_US = 100  # a collective that waits for nobody


def event(name, category, start, duration, link=-1):
    args = {"correlation": link}
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": duration, "tid": 1, "args": args}


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
    assert early.gpu_active_s == pytest.approx(1e-3 + ALONE_US * 1e-6)
    assert early.traversed_s == pytest.approx(10e-3, rel=1e-3)
    assert report.host_bound


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
