"""Annotated ops in profiles: names, places, groups of a pipeline, times on the GPU."""

import json

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.profiles.kineto import read_kineto
from prism_jax.profiles.names import annotation, communication_kind
from prism_jax.trace.assemble import assemble
from prism_jax.trace.pipeline import OP_TYPES, is_pipeline, pipeline_dependencies
from prism_jax.trace.trace import JobShape
from tests.support.kineto_profiles import bare, profile, span, step, timed, write

OFFSET_S = (0.0, 1.0, -2.0, 30.0)


def pipeline(n_step: int = 3, **more) -> list[dict]:
    """Two stages and two replicas, two micro-batches, on clocks that are seconds apart."""
    rng = np.random.default_rng(0)
    files = []
    ends = rng.uniform(0, 20, size=(n_step, 4))  # jitter of what ends together, by group
    for rank in range(4):
        dp, pp = rank % 2, rank // 2
        events = []
        for n in range(n_step):
            at = 1e5 * n + OFFSET_S[rank] * 1e6 + 1e7
            events.append(step(n, at, 9.9e4))
            for mb in range(2):
                base = at + 1e4 * mb
                f0, f1, b1, b0 = base + 1000, base + 3000, base + 30_000, base + 33_000
                if pp == 0:
                    events += [
                        op(f"forward-compute mb={mb}", f0, 1000),
                        op(f"forward-send mb={mb}", f0 + 1000, 500 + ends[n, dp]),
                        op(f"backward-recv mb={mb}", b1 + 2000, 500 + ends[n, dp]),
                        op(f"backward-compute mb={mb}", b0, 2000),
                    ]
                else:
                    events += [
                        op(f"forward-recv mb={mb}", f0 + 1000, 500 + ends[n, dp]),
                        op(f"forward-compute mb={mb}", f1, 1000),
                        op(f"backward-compute mb={mb}", b1, 2000),
                        op(f"backward-send mb={mb}", b1 + 2000, 500 + ends[n, dp]),
                    ]
            events.append(op("grads-reduce-scatter", at + 60_000, 1000 + ends[n, pp]))
            events.append(op("optimizer", at + 70_000, 500))
            events.append(span("user_annotation", "Optimizer.step#AdamW.step", at + 70_100, 300))
            events.append(span("user_annotation", "my own words", at + 500, 10))
        place = {"dp": dp, "pp": pp, "tp": 0, "dp_size": 2, "pp_size": 2}
        files.append(profile(events, rank, 4, **{"prism": place, **more}))
    return files


def op(name: str, ts: float, dur: float) -> dict:
    return span("user_annotation", name, ts, dur)


def test_a_pipeline_is_read_with_its_degrees_and_one_clock(tmp_path):
    table, job = read_kineto(write(tmp_path, pipeline()))
    assert job == JobShape("PyTorch profile", dp=2, pp=2)
    trace = assemble(table, job)
    assert trace.steps.tolist() == [0, 1, 2]
    assert is_pipeline(trace)
    assert pipeline_dependencies(trace).members()
    np.testing.assert_allclose(trace.step_s, 69.5e-3, atol=1e-4)
    np.testing.assert_array_equal(trace.rank, [[0, 2], [1, 3]])
    groups: dict[str, list[int]] = {}
    for index, op in enumerate(trace.ops):
        groups.setdefault(op.group, []).append(index)
    assert len(groups["forward 0->1 1"]) == len(groups["backward 1->0 0"]) == 2
    assert np.ptp(trace.end_s[groups["forward 0->1 1"]], axis=0).max() < 5e-5
    assert [op.micro_batch for op in trace.ops if op.op_type == "forward-recv"] == [0, 1]


def test_an_op_inside_another_of_its_type_counts_once(tmp_path):
    table, job = read_kineto(write(tmp_path, pipeline()))
    assert sum(op.op_type == "optimizer" for op in assemble(table, job).ops) == 2


def test_metadata_may_be_text(tmp_path):
    files = pipeline()
    for file in files:
        file["prism"] = json.dumps({**file["prism"], "name": "mine", "virtual_stages": 2})
    _, job = read_kineto(write(tmp_path, files))
    assert job == JobShape("mine", dp=2, pp=2, virtual_stages=2)


@pytest.mark.parametrize(
    ("prism", "message"),
    [
        (None, "the profiles do not say their pipeline stages. Write them.*preset_metadata_json"),
        ({"dp": 0, "pp": 0, "dp_size": 2, "pp_size": 2}, "two ranks state the same place, dp 0, pp 0, tp 0"),
        ({"dp": 2, "dp_size": 2}, "prism.dp: 2, but dp_size is 2"),
        ({"dp_size": 10**6, "pp_size": 10**6}, "product of the degrees is more than"),
        ({"pd": 2}, "prism.pd: unknown field"),
        ({"dp": "2"}, "prism.dp: '2' is not a whole number from 0"),
        ({"dp_size": 0}, "prism.dp_size: 0 is not a whole number from 1"),
        ("{", "prism: '{' is not a JSON object"),
        ("[" * 5000, "prism: .* is not a JSON object"),
        (17, "prism: 17 is not a JSON object"),
    ],
)
def test_impossible_metadata_are_refused(tmp_path, prism, message):
    files = pipeline(prism=prism)
    if prism is None:
        for file in files:
            del file["prism"]
    with pytest.raises(DataError, match=message):
        read_kineto(write(tmp_path, files))


def test_metadata_must_be_everywhere_and_agree(tmp_path):
    files = pipeline()
    files[2]["prism"]["dp_size"] = 3
    with pytest.raises(DataError, match="different degrees"):
        read_kineto(write(tmp_path, files))
    del files[2]["prism"]
    with pytest.raises(DataError, match="only 3 of 4 profiles say their place"):
        read_kineto(write(tmp_path, files))


def test_without_pipeline_ops_ranks_are_replicas(tmp_path):
    def passes(at: float) -> list:
        return [op("forward_step 0", at + 5, 10), op("backward_step 0", at + 20, 10)]

    files = [profile([step(1, 100 * r, 90), *passes(100 * r)], r, 8) for r in range(2)]
    table, job = read_kineto(write(tmp_path, files))
    assert job == JobShape("PyTorch profile", dp=2)
    assert set(table.op_types) == {"forward-compute", "backward-compute"}
    assert "2 of 8 ranks were recorded" in table.notes


def test_times_are_those_of_the_gpu_where_there_are_any(tmp_path):
    """The backward pass launches from another thread; the GPU's own span of the forward pass has two streams."""
    events = [
        step(1, 0, 100),
        span("user_annotation", "forward-compute mb=0", 10, 5, **{"External id": 4}),
        span("gpu_user_annotation", "forward-compute mb=0", 200, 50, tid=7, **{"External id": 4}),
        span("gpu_user_annotation", "forward-compute mb=0", 190, 20, tid=9, **{"External id": 4}),
        span("user_annotation", "backward-compute mb=0", 30, 10, **{"External id": 5}),
        span("cuda_runtime", "cudaLaunchKernel", 35, 1, tid=2, correlation=1),
        span("cuda_runtime", "cudaLaunchKernel", 38, 1, tid=2, correlation=2),
        span("kernel", "gemm", 260, 30, stream=7, correlation=1),
        span("kernel", "gemm", 300, 30, stream=7, correlation=2),
        span("user_annotation", "gc", 50, 10),
    ]
    table, _ = read_kineto(write(tmp_path, [profile(events, world=1)]))
    assert timed(table) == [("backward-compute", 210.0, 70.0), ("forward-compute", 140.0, 60.0), ("gc", 0.0, 10.0)]


def test_one_call_that_sends_and_receives_is_two_ops(tmp_path):
    events = [step(1, 0, 100), op("forward_step", 1, 5), op("backward_step", 30, 5)]
    events.append(op("send_forward_recv_backward", 10, 15))
    table, _ = read_kineto(write(tmp_path, [profile(events, prism={"pp": 0, "pp_size": 2})]))
    both = np.isin(table.op_type, [table.op_types.index(n) for n in ("forward-send", "backward-recv")])
    np.testing.assert_allclose(table.duration_s[both], 15e-6)
    assert both.sum() == 2


def test_torch_pipeline_schedules_are_understood(tmp_path):
    """Two ranks with two model chunks each; chunk 2 is the second of rank 0."""
    files = []
    for rank in range(2):
        events = [step(1, 0, 1000)]
        for index, q in enumerate((rank, rank + 2)):
            at = 100 * index
            events += [op(f"PP:{q}F0", at + 10, 10), op(f"PP:{q}B0", at + 500, 10)]
            if q < 3:
                events.append(op(f"PP:{q}SEND_F0", at + 20, 10))
            if q > 0:
                events.append(op(f"PP:{q}RECV_F0", at + 5, 25 if rank else 3))
        files.append(profile(events, rank, prism={"pp": rank, "pp_size": 2}))
    table, job = read_kineto(write(tmp_path, files))
    assert job == JobShape("PyTorch profile", pp=2, virtual_stages=2)
    trace = assemble(table, job)
    chunks = {(op.stage, op.chunk) for op in trace.ops if op.op_type == "forward-compute"}
    assert chunks == {(0, 0), (0, 1), (1, 0), (1, 1)}
    ends = [(op.group, op.stage) for op in trace.ops if op.group]
    assert sorted(ends) == [(f"forward {q}->{q + 1} 0", s) for q in range(3) for s in sorted((q % 2, (q + 1) % 2))]


def test_forward_alone_is_no_annotated_job(tmp_path):
    events = [step(1, 0, 100), op("forward-compute", 10, 20)]
    table, _ = read_kineto(write(tmp_path, [profile(events, world=1)]))
    assert table.op_types == ("compute",)


def test_a_field_that_is_no_number_is_named(tmp_path):
    events = [step(1, 0, 100), op("forward-compute mb=two", 10, 20)]
    with pytest.raises(DataError, match="event 2 name: 'forward-compute mb=two' is not a whole number"):
        read_kineto([bare(tmp_path, events)])[0]


@pytest.mark.parametrize("name", OP_TYPES)
def test_every_op_type_is_understood_with_its_fields(name):
    found = annotation(f"{name} mb=3, chunk=1 and=more")
    assert found is not None
    assert (found.op_types, found.micro_batch, found.chunk) == ((name,), 3, 1)


@pytest.mark.parametrize("name", ["", " ", "F", "B 3", "forwards", "forward", "PP:1W2", "PP:0F_1B2OVERLAP_F_B", "mb=3"])
def test_other_names_mean_nothing(name):
    assert annotation(name) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", "all_gather"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send_recv"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("allreduce_", "all_reduce"),
        ("ncclDevKernel_Reduce_Sum_f32", "reduce"),
        ("recv_any_source_", "recv"),
        ("ncclDevKernel_Generic_4", ""),
    ],
)
def test_kinds_of_communication_are_found_in_names(name, kind):
    assert communication_kind(name) == kind
