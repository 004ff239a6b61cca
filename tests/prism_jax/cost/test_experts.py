"""Dropless experts: the host waits for the number of tokens of each, graphs end there; and dispatchers of tokens."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.calibration.surrogate import seconds_under
from prism_jax.core.errors import SpecError
from prism_jax.cost.block_cost import BlockCostModel, dispatch_share
from prism_jax.cost.efficiency import efficiency
from prism_jax.framework.software import DISPATCHERS, Software
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.prediction.job_facts import expert_notes
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import preset
from prism_jax.workload.base.workload import Comm
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.spec import TransformerSpec

QWEN = model("qwen3-30b-a3b")
HOST = Software(expert_counts="host", dispatcher="alltoall", cuda_graphs="none")
PLAN = ParallelPlan(1, 64, 4096, dp=8, ep=8, zero_stage=1, software=HOST)
NODE = cluster("b200", 8)


def with_capacity(factor: float) -> TransformerSpec:
    assert QWEN.moe is not None
    return replace(QWEN, moe=replace(QWEN.moe, capacity_factor=factor))


def blocks(software: Software = HOST, spec: TransformerSpec = QWEN, **plan: object) -> BlockCostModel:
    return BlockCostModel(spec, NODE, replace(PLAN, software=software, **plan), efficiency("blackwell"))


def seconds(software: Software = HOST, spec: TransformerSpec = QWEN) -> float:
    return float(seconds_under([blocks(software, spec)])[0])


def waiting(own: BlockCostModel) -> list[float]:
    return own.alone("moe_layer").n_waiting.tolist()


def test_the_host_waits_in_the_forward_pass_and_where_it_runs_again() -> None:
    launches = blocks().alone("moe_layer").n_launch
    assert waiting(blocks()) == [launches[0], 0.0, 0.0]
    assert waiting(blocks(recompute="full"))[1] > 0.0
    assert waiting(blocks(recompute="selective", recompute_modules=("layernorm",)))[1] == 0.0
    assert not any(blocks().alone("embedding").n_waiting)


@pytest.mark.parametrize(
    "software",
    [
        replace(HOST, expert_counts="device"),
        replace(HOST, cuda_graphs="step"),
        replace(HOST, dispatcher="hybridep", cuda_graphs="layers"),
    ],
)
def test_nobody_waits_for_what_the_device_knows(software: Software) -> None:
    assert waiting(blocks(software)) == [0.0] * 3


def test_tokens_that_are_dropped_are_not_waited_for() -> None:
    assert waiting(blocks(spec=with_capacity(1.0))) == [0.0] * 3
    assert seconds(spec=with_capacity(1.0)) < seconds()
    on_device = replace(HOST, expert_counts="device")
    assert seconds(on_device) == pytest.approx(seconds(spec=with_capacity(1.0)), rel=1e-9)


def test_a_step_is_between_the_longer_of_host_and_device_and_their_sum() -> None:
    faster = replace(efficiency("blackwell"), host_launch_s=0.0)
    alone = float(seconds_under([replace(blocks(), eff=faster)])[0])
    launches = sum(float(blocks().whole(kind).n_launch.sum()) * n for kind, n in (("moe_layer", 48), ("head", 1)))
    host = launches * efficiency("blackwell").host_launch_s * PLAN.n_micro_batch
    assert max(alone, host) < seconds() < alone + host


def test_graphs_of_layers_hold_what_comes_before_the_wait_only() -> None:
    graphs = replace(HOST, cuda_graphs="layers")
    on_device = replace(graphs, expert_counts="device")
    none, some, all_ = (blocks(own).alone("moe_layer").n_launch[0] for own in (HOST, graphs, on_device))
    assert all_ == pytest.approx(0.05 * none)
    assert all_ < some < none
    kernels = QWEN.block("moe_layer", replace(PLAN, software=HOST)).kernels.ops
    routed = sum(op.n_launch for op in kernels if op.phase == "F" and op.name.startswith(("experts", "permute", "unp")))
    assert some == pytest.approx(0.05 * (none - routed) + routed)


def test_capacity_sets_the_load_of_experts() -> None:
    def products(spec: TransformerSpec) -> float:
        ops = spec.block("moe_layer", PLAN).kernels.ops
        return sum(op.flops for op in ops if op.name in ("experts_in", "experts_out"))

    assert products(with_capacity(1.25)) == pytest.approx(1.25 * products(QWEN))
    assert QWEN.moe is not None
    uneven = replace(QWEN, moe=replace(QWEN.moe, imbalance=1.4))
    even = replace(QWEN, moe=replace(QWEN.moe, imbalance=1.4, capacity_factor=1.0))
    assert products(uneven) == pytest.approx(1.4 * products(QWEN))
    assert products(even) == products(QWEN)
    with pytest.raises(SpecError, match="capacity_factor = -1.0, but it must lie between 0"):
        with_capacity(-1.0)


@pytest.mark.parametrize(
    ("framework", "who"), [("megatron-core", "host"), ("fsdp", "host"), ("jax", "device"), ("deepspeed", "device")]
)
def test_frameworks_wait_or_do_not(framework: str, who: str) -> None:
    plan = replace(PLAN, software=Software())
    assert Job(QWEN, NODE, plan, preset("none"), framework=framework).plan.software.expert_counts == who


def test_outlines_know_who_waits() -> None:
    assert np.isclose(seconds(), float(seconds_under([blocks(), blocks()])[1]))
    assert seconds() > seconds(replace(HOST, expert_counts="device"))


def test_a_job_file_states_the_capacity() -> None:
    job = load_job("deepseek_v3_2048", ["model.moe.capacity_factor=1.5"])
    assert isinstance(job.model, TransformerSpec)
    assert job.model.moe is not None
    assert (job.model.moe.capacity_factor, job.model.moe.n_experts) == (1.5, 256)


def test_a_call_for_each_expert_is_work_of_the_host_alone() -> None:
    ways = {
        name: blocks(replace(HOST, expert_products=name)).alone("moe_layer") for name in ("grouped", "streams", "apart")
    }
    assert np.allclose(ways["streams"].compute_s, ways["grouped"].compute_s)
    more = (ways["streams"].n_launch - ways["grouped"].n_launch).sum()
    assert more == pytest.approx(0.1 * 15 * 6)  # 16 experts on a device; two products, three passes
    assert (ways["apart"].n_launch - ways["grouped"].n_launch).sum() == pytest.approx(15 * 6)
    assert (ways["apart"].compute_s >= ways["grouped"].compute_s * (1 - 1e-9)).all()


def test_experts_apart_are_as_much_work() -> None:
    def flops(own: str) -> float:
        ops = QWEN.block("moe_layer", replace(PLAN, software=replace(HOST, expert_products=own))).kernels.ops
        return sum(op.flops * op.count for op in ops)

    assert flops("apart") == pytest.approx(flops("grouped"))


def test_what_is_assumed_of_experts_is_a_sentence() -> None:
    plan = replace(PLAN, software=Software(), tp=2, dp=4, sequence_parallel=True)
    job = Job(QWEN, NODE, plan, preset("none"), framework="megatron-core")
    (said,) = expert_notes(job)
    assert "dispatcher alltoall; plan.etp 1; software.expert_products streams; no capacity_factor (dropless)" in said
    assert said.endswith("for whose loads the host waits in every layer")
    assert "waits" not in expert_notes(replace(job, framework="jax"))[0]
    full = Software(dispatcher="deepep", expert_counts="device", expert_products="grouped")
    assert expert_notes(replace(job, plan=replace(plan, etp=2, software=full))) == ()
    assert expert_notes(replace(job, model=model("llama-3-8b"), plan=replace(plan, ep=1))) == ()


def test_graphs_are_less_likely_where_they_end_at_every_wait() -> None:
    def odds(spec: TransformerSpec) -> dict[str, float]:
        job = Job(spec, NODE, replace(PLAN, software=Software()), preset("none"), framework="megatron-core")
        (own,) = [own for own in job.open_fields if own.name == "software.cuda_graphs"]
        return dict(zip(own.values, own.odds, strict=True))

    assert odds(QWEN) == pytest.approx({"none": 0.9, "layers": 0.1})
    assert odds(with_capacity(1.0)) == pytest.approx({"none": 0.5, "layers": 0.5})


# --- Dispatchers: bytes of each, and no plain all-to-all faster than its wire ----------------------------------------


PAIRS_BYTES = 4096 * 8 * 2048 * 2.0  # 8 of 128 experts per token, hidden 2,048
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
