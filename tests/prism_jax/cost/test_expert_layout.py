"""Experts over the ranks of a stage, whole or split: what a device holds, works on and exchanges; which plans are possible."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import PlanError
from prism_jax.cost.memory import memory
from prism_jax.framework.base import GIB
from prism_jax.job.job import Job
from prism_jax.job.rules import check_plan
from prism_jax.plan.plan import ParallelPlan, device_layout
from prism_jax.search.plan_table import PlanTable
from prism_jax.system.hardware import Cluster, Device
from prism_jax.system.network import Tier
from prism_jax.variability.config import preset
from prism_jax.workload.base.workload import Comm
from prism_jax.workload.transformer.sizes import MoESpec
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
