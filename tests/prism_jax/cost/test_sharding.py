"""Experts over the ranks of a stage and parameters over a data group: what a device holds, works on and exchanges."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import PlanError
from prism_jax.cost.block_cost import BlockCostModel
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import StageMemory, memory
from prism_jax.cost.partition import Gathered, chunk_blocks, gather_comms, group_splits, stage_weights
from prism_jax.cost.step_end import end_work
from prism_jax.framework.base import GIB
from prism_jax.framework.frameworks import FSDP
from prism_jax.job.job import Job
from prism_jax.job.rules import check_plan
from prism_jax.plan.plan import ParallelPlan, device_layout
from prism_jax.search.plan_table import PlanTable
from prism_jax.system.hardware import Cluster, Device
from prism_jax.system.network import Tier
from prism_jax.variability.config import preset
from prism_jax.workload.base.workload import Comm
from prism_jax.workload.catalog import model as catalog_model
from prism_jax.workload.transformer.sizes import AdapterSpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

H100 = Device("h100", {"bf16": 989e12}, 80 * GIB, 3.35e12, 700.0, 132, generation="hopper", source="datasheet")
MOE = MoESpec(n_experts=128, top_k=8, ffn_hidden=1536)
MODEL = TransformerSpec("experts", 4, 4096, 64, 1536, 32000, n_kv_heads=4, gated=True, norm="rms", position="rope",
                        bias=False, tied_embeddings=False, moe=MOE)  # fmt: skip
EXPERTS = 4 * 128 * 3 * 4096 * 1536  # parameters
BASE = ParallelPlan(1, 64, 4096, tp=2, dp=16, ep=32, sequence_parallel=True)


def cluster(n_devices: int) -> Cluster:
    tiers = (Tier("nvlink", 8, 450e9, 1e-6), Tier("network", max(n_devices, 8), 50e9, 5e-6))
    return Cluster("test", H100, tiers, n_devices)


def expert_comms(plan: ParallelPlan) -> list[Comm]:
    return [own for own in MODEL.block("moe_layer", plan).comms if own.axis == "ep"]


def expert_parameters(plan: ParallelPlan) -> float:
    return sum(4 * own.count for own in MODEL.block("moe_layer", plan).parameters if own.group == "expert")


def expert_flops(plan: ParallelPlan) -> float:
    kernels = MODEL.block("moe_layer", plan).kernels.ops
    return sum(own.flops for own in kernels if own.name.startswith("experts_"))


def test_expert_parallelism_reaches_over_tensor_parallel_ranks() -> None:
    check_plan(BASE, MODEL, cluster(32))
    assert (BASE.expert_tp, BASE.tied, BASE.n_member) == (1, 16, 32)
    with pytest.raises(PlanError, match=r"ep = 32 times etp = 2 does not divide tp\*cp\*dp = 2\*1\*16 = 32. Try etp=1"):
        check_plan(replace(BASE, etp=2), MODEL, cluster(32))
    with pytest.raises(PlanError, match=r"ep = 64 does not divide tp\*cp\*dp = 2\*1\*16 = 32. Try ep=32"):
        check_plan(replace(BASE, ep=64), MODEL, cluster(32))


def test_the_remedy_of_a_degree_of_experts_is_one_that_helps() -> None:
    with pytest.raises(PlanError, match=r"= 32. Try etp=1 \(whole experts\)\.$"):  # with etp = 3 no ep does
        check_plan(replace(BASE, etp=3), MODEL, cluster(32))
    with pytest.raises(PlanError, match=r"Try etp=1 \(whole experts\) or ep=16\.$"):
        check_plan(replace(BASE, etp=2), MODEL, cluster(32))
    check_plan(replace(BASE, ep=16, etp=2), MODEL, cluster(32))


def test_a_negative_degree_is_refused() -> None:
    with pytest.raises(PlanError, match="etp = -1, but it must be at least 1, or 0: as tp"):
        replace(BASE, etp=-1)


def test_a_degree_of_experts_means_nothing_without_experts() -> None:
    plan = ParallelPlan(1, 8, 4096, tp=2, dp=4, etp=2)
    with pytest.raises(PlanError, match="etp = 2, but dense has no experts. Leave it out"):
        check_plan(plan, replace(MODEL, name="dense", moe=None), cluster(8))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(degrees=st.tuples(*(st.integers(0, 3) for _ in range(3))), data=st.data())
def test_every_device_holds_its_part_and_all_parts_are_held(degrees: tuple[int, int, int], data: st.DataObject) -> None:
    """Parameters, and states over the ranks that hold the same experts, are counted over the whole stage."""
    tp, cp, dp = (2**k for k in degrees)
    n = tp * cp * dp
    etp = data.draw(st.sampled_from([d for d in (1, 2, 4, 8) if n % d == 0]))
    ep = data.draw(st.sampled_from([d for d in (1, 2, 4, 8, 16, 32, 64, 128) if (n // etp) % d == 0]))
    plan = ParallelPlan(1, n, 4096, tp=tp, cp=cp, dp=dp, ep=ep, etp=etp, sequence_parallel=True)
    assert expert_parameters(plan) == pytest.approx(EXPERTS / (ep * etp))
    with_zero, without = (memory(MODEL, cluster(n), replace(plan, zero_stage=stage)).worst for stage in (1, 0))
    dense = MODEL.n_params() - EXPERTS
    dense_local = without.parameters_bytes / 2 - EXPERTS / (ep * etp)
    assert with_zero.optimizer_bytes == pytest.approx(12 * (dense_local / (dp * cp) + EXPERTS / n), rel=1e-9)
    assert dense / tp <= dense_local * (1 + 1e-9)
    assert expert_flops(plan) == pytest.approx(expert_flops(replace(plan, ep=1, etp=0)), rel=1e-9)
    assert plan.n_member * plan.n_replica == n
    assert np.unique(device_layout(plan)).size == n
    table = PlanTable.of(plan)
    assert (int(table.expert_tp[0]), int(table.tied[0])) == (plan.expert_tp, plan.tied)
    # the groups of experts lie inside one group of ranks that synchronise
    assert plan.n_member % np.lcm(ep * etp, tp * cp) == 0


def test_whole_experts_take_the_tokens_of_one_rank_from_everywhere() -> None:
    pairs = 4096 / 2 * 8 * 4096  # tokens of one of two ranks, 8 experts each, elements
    assert [(own.kind, own.size, own.stride, own.n_bytes) for own in expert_comms(BASE)] == [
        ("all_to_all", 32, 1, 2 * pairs)
    ] * 4


def test_split_experts_gather_their_tokens_behind_the_exchange() -> None:
    plan = replace(BASE, ep=16, etp=2)
    pairs = 4096 / 2 * 8 * 4096
    found = [(own.kind, own.size, own.stride, own.n_bytes) for own in expert_comms(plan)]
    assert found[:4] == [("all_to_all", 16, 2, 2 * pairs)] * 4
    assert sorted(found[4:]) == [("all_gather", 2, 1, 4 * pairs)] * 2 + [("reduce_scatter", 2, 1, 4 * pairs)] * 2


@pytest.mark.parametrize("framework", ["megatron-core", "fsdp", ""])
def test_experts_are_whole_unless_a_job_or_its_framework_splits_them(framework: str) -> None:
    def of(framework: str, **fields: int) -> int:
        plan = replace(BASE, ep=8, **fields)
        return Job(MODEL, cluster(32), plan, preset("none"), framework=framework).plan.expert_tp

    assert of(framework) == 1
    assert of(framework, etp=2) == 2
    assert of(framework, etp=0) == 2
    assert of("jax") == 2


def test_what_is_assumed_of_split_experts_is_said() -> None:
    job = Job(MODEL, cluster(32), replace(BASE, ep=8), preset("none"), framework="megatron-core")
    (own,) = [own for own in job.open_fields if own.name == "plan.etp"]
    assert own.values == (1, 2)
    stated = replace(job, plan=replace(job.plan, etp=1))
    assert not [own for own in stated.open_fields if own.name == "plan.etp"]
    no_choice = replace(job, plan=BASE)  # 32 * 2 devices do not exist
    assert not [own for own in no_choice.open_fields if own.name == "plan.etp"]


def test_without_expert_parallelism_experts_are_split_as_everything_else() -> None:
    plan = replace(BASE, ep=1)
    assert plan.expert_tp == 2
    assert expert_parameters(plan) == EXPERTS / 2


# --- Sharded parameters: as many bytes however a data group is split into dp and cp ----------------------------------


DENSE = TransformerSpec("dense", 4, 1024, 16, 2816, 32000, n_kv_heads=8, gated=True, norm="rms", position="rope")
MODELS = {
    "dense": DENSE,
    "experts": replace(DENSE, name="experts", moe=MoESpec(n_experts=16, top_k=2, ffn_hidden=512)),
    "adapters": replace(DENSE, name="adapters", adapters=AdapterSpec(rank=8, targets=("all",))),
    "adapters on experts": replace(
        DENSE,
        name="both",
        moe=MoESpec(n_experts=16, top_k=2, ffn_hidden=512),
        adapters=AdapterSpec(rank=8, targets=("all",)),
    ),
}
LLAMA = catalog_model("llama-3-8b")
SHARDINGS = {"fsdp": {"sharding": "fsdp"}, "zero-3": {"zero_stage": 3}, "hsdp": {"sharding": "hsdp"}}


def held(name: str, plan: ParallelPlan) -> StageMemory:
    return memory(MODELS[name], cluster(plan.n_devices), plan).worst


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("sharding", SHARDINGS)
@settings(deadline=None, derandomize=True, max_examples=15)
@given(data=st.data())
def test_states_take_as_many_bytes_however_the_group_is_split(name: str, sharding: str, data: st.DataObject) -> None:
    size, tp = 2 ** data.draw(st.integers(0, 6)), data.draw(st.sampled_from([1, 2]))
    ep = data.draw(st.sampled_from([d for d in (1, 2, 4, 8) if size % d == 0])) if "experts" in name else 1
    group = data.draw(st.sampled_from([2**k for k in range(size.bit_length())]))
    found = set()
    for cp in (2**k for k in range(size.bit_length())):
        shard = {"dp_shard": group // cp} if sharding == "hsdp" else {}
        if shard and group % cp:
            continue
        plan = ParallelPlan(1, size, 4096, tp=tp, dp=size // cp, cp=cp, ep=ep, **SHARDINGS[sharding], **shard)
        own = held(name, plan)
        found.add(tuple(round(x) for x in (own.parameters_bytes, own.gradients_bytes, own.optimizer_bytes)))
    assert len(found) == 1


@pytest.mark.parametrize("order", [("tp", "cp", "dp", "pp"), ("tp", "dp", "cp", "pp")])
def test_context_parallel_ranks_gather_and_scatter_parameters(order: tuple[str, ...]) -> None:
    whole = ParallelPlan(1, 8, 8192, dp=8, sharding="fsdp")
    split = replace(whole, dp=1, cp=8, axis_order=order)
    counts = [Gathered(1e6, 1)]
    assert gather_comms(split, counts) == gather_comms(whole, counts)
    assert [(own.kind, own.size) for own in gather_comms(split, counts)] == [
        ("all_gather", 8),
        ("all_gather", 8),
        ("reduce_scatter", 8),
    ]


def test_groups_of_hsdp_hold_all_of_cp_and_are_reduced_between() -> None:
    plan = ParallelPlan(1, 16, 8192, dp=8, cp=2, sharding="hsdp", dp_shard=4)
    assert (plan.shard_group, plan.n_member, plan.n_replica) == (8, 8, 2)
    assert {own.size for own in gather_comms(plan, [Gathered(1e6, 1)])} == {8}
    assert sorted(device_layout(plan)[:, 0, 0].tolist()) == list(range(8))


def test_one_group_of_all_ranks_reduces_nothing_at_the_end() -> None:
    plan = ParallelPlan(1, 8, 8192, dp=2, cp=4, sharding="fsdp")
    weights = stage_weights(DENSE, plan, chunk_blocks(DENSE, plan), [(0,)])[0]
    work = end_work(cluster(8), plan, group_splits(DENSE, plan), weights, efficiency("hopper"))
    assert float(work.reduce_s) == float(work.gather_s) == 0.0


def test_steps_without_replicas_wait_for_their_gathers() -> None:
    plan = ParallelPlan(1, 8, 8192, cp=8, sharding="fsdp")
    blocks = BlockCostModel(DENSE, cluster(8), plan, efficiency("hopper"))
    assert float(blocks.gathering("dense_layer").comm_s.sum()) > 0.0


def test_llama_3_8b_on_eight_context_parallel_ranks_as_in_torchtitan() -> None:
    """torchtitan issue 685: fp32 parameters over 8 ranks are 8.03e9 * 4 / 8 = 3.74 GiB."""
    plan = ParallelPlan(1, 1, 8192, cp=8, sharding="fsdp", recompute="selective_op")
    own = memory(LLAMA, cluster(8), plan, FSDP.memory)
    assert own.worst.parameters_bytes == pytest.approx(8.03e9 * 4 / 8, rel=1e-3)
    assert own.total_bytes / GIB == pytest.approx(22.0, rel=0.1)
