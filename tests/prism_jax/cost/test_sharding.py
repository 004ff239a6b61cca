"""Sharded parameters: as many bytes however a data group is split into dp and cp, gathered and scattered over all of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.cost.block_cost import BlockCostModel
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.memory import StageMemory, memory
from prism_jax.cost.partition import Gathered, chunk_blocks, gather_comms, group_splits, stage_weights
from prism_jax.cost.step_end import end_work
from prism_jax.framework.base import GIB
from prism_jax.framework.frameworks import FSDP
from prism_jax.plan.plan import ParallelPlan, device_layout
from prism_jax.system.hardware import Cluster, Device
from prism_jax.system.network import Tier
from prism_jax.workload.catalog import model as catalog_model
from prism_jax.workload.transformer.sizes import AdapterSpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

H100 = Device("h100", {"bf16": 989e12}, 80 * GIB, 3.35e12, 700.0, 132, generation="hopper", source="datasheet")
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


def cluster(n_devices: int) -> Cluster:
    tiers = (Tier("nvlink", 8, 450e9, 1e-6), Tier("network", max(n_devices, 8), 50e9, 5e-6))
    return Cluster("test", H100, tiers, n_devices)


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
