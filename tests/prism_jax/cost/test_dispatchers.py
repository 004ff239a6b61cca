"""Tokens on their way to experts: bytes of every dispatcher, and no plain all-to-all faster than its wire."""

from dataclasses import replace

import pytest

from prism_jax.cost.block_cost import BlockCostModel, dispatch_share
from prism_jax.framework.software import DISPATCHERS, Software
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import preset
from prism_jax.workload.base.workload import Comm
from prism_jax.workload.catalog import model

QWEN = model("qwen3-30b-a3b")  # 128 experts, 8 per token, hidden 2,048
PAIRS_BYTES = 4096 * 8 * 2048 * 2.0
PORT, NVLINK = 50e9, 450e9


def job_of(n_devices: int, dispatcher: str | None, framework: str = "megatron-core", **fields: object) -> Job:
    plan = ParallelPlan(1, 8 * n_devices, 4096, dp=n_devices, ep=min(n_devices, 128), zero_stage=1)
    plan = replace(plan, software=Software(dispatcher=dispatcher), **fields)
    return Job(QWEN, cluster("dgx-h100", plan.n_devices), plan, preset("none"), framework=framework)


def comms_of(job: Job) -> list[Comm]:
    return [own for own in job.model.block("moe_layer", job.plan).comms if own.axis == "ep"]


def seconds_of(job: Job, comm: Comm) -> float:
    return float(BlockCostModel(job.model, job.cluster, job.plan, job.efficiency).comm_seconds(comm))


@pytest.mark.parametrize("n_devices", [8, 16, 32, 64, 128, 256, 512])
@pytest.mark.parametrize("dispatcher", ["alltoall", None])
@pytest.mark.parametrize("framework", ["megatron-core", "fsdp", "deepspeed", ""])
def test_plain_all_to_all_is_never_faster_than_the_wire(n_devices: int, dispatcher: str, framework: str) -> None:
    job = job_of(n_devices, dispatcher, framework)
    assert job.plan.software.dispatcher == "alltoall"
    for comm in comms_of(job):
        assert (comm.kind, comm.n_bytes, comm.fan_out) == ("all_to_all", PAIRS_BYTES, 0)
        seconds, size = seconds_of(job, comm), comm.size
        assert comm.n_bytes * (size - min(size, 8)) / size / seconds <= PORT
        assert comm.n_bytes * (min(size, 8) - 1) / size / seconds <= NVLINK


def test_sixteen_gpus_exchange_tokens_in_two_milliseconds() -> None:
    """By hand: half of the copies leave the node, at 0.72 of 50 GB/s: 1.86 ms."""
    job = job_of(16, "alltoall")
    found = job.cluster.fabric.collective("all_to_all", PAIRS_BYTES, 1, 16).seconds
    assert found == pytest.approx(PAIRS_BYTES / 2 / (0.72 * PORT), rel=0.15)


@pytest.mark.parametrize(("n_devices", "dispatcher"), [(16, "hybridep"), (64, "deepep")])
def test_a_token_crosses_to_a_node_once(n_devices: int, dispatcher: str) -> None:
    plain, once = (
        seconds_of(job, comms_of(job)[0]) for job in (job_of(n_devices, "alltoall"), job_of(n_devices, dispatcher))
    )
    assert once / plain == pytest.approx(dispatch_share(n_devices // 8, 8) * 0.72 / 0.87, rel=0.4)  # latencies stay


def test_on_two_nodes_deepep_waits_for_the_copies_to_every_gpu() -> None:
    """By hand: a token goes to 16 (1 - (15 / 16)^8) = 6.45 GPUs, 16.8 MB each, at 150 GB/s: .72 ms for NCCL's 1.86 ms."""
    job, plain = job_of(16, "deepep"), job_of(16, "alltoall")
    comm = comms_of(job)[0]
    factor, call_s = job.efficiency.correction.comm(True)
    copied_s = 4096 * 2048 * 2.0 * 16 * (1 - (15 / 16) ** 8) / 150e9
    assert seconds_of(job, comm) == pytest.approx(factor * copied_s + call_s, rel=1e-6)
    assert 2.0 < seconds_of(plain, comms_of(plain)[0]) / seconds_of(job, comm) < 2.6  # DeepSpeed PR 8213: 2.08 to 2.49


def test_a_token_goes_once_to_every_gpu_of_a_node_with_deepep() -> None:
    inside = job_of(8, "deepep")
    assert [own.n_bytes for own in comms_of(inside)] == [PAIRS_BYTES] * 4
    assert seconds_of(inside, comms_of(inside)[0]) < seconds_of(
        job_of(8, "alltoall"), comms_of(job_of(8, "alltoall"))[0]
    )


@pytest.mark.parametrize(("dispatcher", "sums"), [("allgather", "reduce_scatter"), ("allreduce", "all_reduce")])
def test_everybody_gets_all_tokens(dispatcher: str, sums: str) -> None:
    gathered = 16 * 4096 * 2048 * 2.0
    found = [(own.kind, own.phase, own.n_bytes, own.size) for own in comms_of(job_of(16, dispatcher))]
    assert found == [(kind, phase, gathered, 16) for phase in "FB" for kind in ("all_gather", sums)]


def test_gathered_tokens_meet_the_ranks_that_split_an_expert_too() -> None:
    job = job_of(32, "allgather", tp=2, dp=16, ep=8, etp=2, sequence_parallel=True)
    assert {(own.size, own.n_bytes) for own in comms_of(job)} == {(16, 16 * 2048 * 2048 * 2.0)}


@pytest.mark.parametrize("dispatcher", DISPATCHERS)
def test_eight_bits_travel_where_the_dispatcher_makes_them(dispatcher: str) -> None:
    first = comms_of(job_of(8, dispatcher, dtype="fp8"))[0]
    narrow = dispatcher in ("deepep", "hybridep")
    assert first.n_bytes == PAIRS_BYTES / (2 if narrow else 1)


def test_what_is_assumed_of_the_dispatcher_is_said() -> None:
    names = [own.name for own in job_of(32, None).open_fields]
    assert "software.dispatcher" in names
    assert "software.dispatcher" not in [own.name for own in job_of(32, "alltoall").open_fields]
    dense = Job(model("llama-3-8b"), cluster("dgx-h100", 8), ParallelPlan(1, 64, 4096, dp=8), preset("none"))
    assert "software.dispatcher" not in [own.name for own in dense.open_fields]


def test_recipes_of_the_vendor_send_tokens_once() -> None:
    plan = ParallelPlan(1, 64, 4096, dp=8, ep=8, software=Software(tuning="vendor"))
    job = Job(QWEN, cluster("dgx-h100", 8), plan, preset("none"), framework="megatron-core")
    assert job.plan.software.dispatcher == "deepep"
    older = replace(plan, software=Software(tuning="vendor", date="2024-06"))
    assert replace(job, plan=older).plan.software.dispatcher == "alltoall"


def test_a_job_file_states_the_dispatcher() -> None:
    job = load_job("deepseek_v3_2048")
    assert job.plan.software.dispatcher == "deepep"
    assert {own.fan_out for own in comms_of(job)} == {8}
