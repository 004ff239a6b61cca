"""Seconds of blocks, of sharded parameters and of what is offloaded."""

from collections import defaultdict
from dataclasses import fields, replace

import numpy as np
import pytest

from experiments.capture.spec.run import captured, stated
from prism_jax import load_job
from prism_jax.calibration.surrogate import PROBES
from prism_jax.cost.block_cost import BlockCost, BlockCostModel, Gathered, copy_kernels
from prism_jax.cost.efficiency import CostCorrection, efficiency
from prism_jax.cost.memory import memory
from prism_jax.cost.step import step_cost
from prism_jax.cost.step_end import HOST_UPDATE_S, host_update_s
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.workload import kinds_of
from prism_jax.workload.catalog import model

PLANS = {
    "llama-2-7b": ParallelPlan(1, 32, 4096, tp=2, dp=16, sharding="fsdp", dtype="fp8"),
    "mixtral-8x7b": ParallelPlan(1, 32, 4096, tp=2, pp=2, dp=8, ep=8, zero_stage=1),
}
CORRECTIONS = (
    *PROBES,
    CostCorrection(gemm=1.1, attention=0.9, memory=1.3, fp8=0.8, expert=1.7, scale_up=1.2, network=2.0),
    CostCorrection(scale_up_call_s=1e-5, network_call_s=3e-5, host=2.0, overlap_window=0.5),
)


@pytest.mark.parametrize("name", PLANS)
def test_blocks_under_another_correction_are_those_made_from_scratch(name: str) -> None:
    spec, plan, eff = model(name), PLANS[name], efficiency("hopper")
    first = BlockCostModel(spec, cluster("dgx-h100", plan.n_devices), plan, eff)
    for correction in CORRECTIONS:
        anew = replace(first, eff=replace(eff, correction=correction))
        for kind in kinds_of(spec):
            shared, alone = first.under(correction).whole(kind), anew.whole(kind)
            for item in fields(BlockCost):
                assert np.array_equal(getattr(shared, item.name), getattr(alone, item.name)), (kind, item.name)


# --- Copies around the collectives of sharded parameters, as FSDP2 makes them; see `cost.sharded.copy_kernels` -------


PLAN = ParallelPlan(1, 8, dp=8, sharding="fsdp", shard_copies=True)
COUNT = 1000.0


def moved(plan: ParallelPlan, count: Gathered) -> dict[str, float]:
    """Bytes by name and pass."""
    found: dict[str, float] = defaultdict(float)
    for kernel in copy_kernels(plan, [count]):
        found[f"{kernel.name} {kernel.phase}"] += kernel.hbm_bytes
    return dict(found)


def test_parameters_are_copied_in_in_parts_and_out_as_a_whole_and_gradients_in():
    both = {f"gather_copy_in {phase}": 2 * 2 * COUNT / 8 for phase in "FB"}
    both |= {f"gather_copy_out {phase}": 2 * 2 * COUNT for phase in "FB"}
    assert moved(PLAN, Gathered(COUNT, 1)) == both | {"scatter_copy_in B": (2 + 2) * COUNT}
    assert moved(PLAN, Gathered(COUNT, 1, frozen_bytes=2.0)) == both


def test_gradients_are_written_in_the_format_that_they_are_added_in():
    wide = replace(PLAN, state_dtypes=StateDtypes(grad_reduce="fp32"))
    assert moved(wide, Gathered(COUNT, 1))["scatter_copy_in B"] == (2 + 4) * COUNT


@pytest.mark.parametrize("plan", [replace(PLAN, shard_copies=None), replace(PLAN, sharding="none")])
def test_nothing_is_copied_unless_a_plan_says_so_and_shards(plan: ParallelPlan):
    assert moved(plan, Gathered(COUNT, 1)) == {}
    assert moved(PLAN, Gathered(COUNT, 8)) == {}  # divided by the workload itself


def test_steps_grow_by_the_copies_alone():
    job = stated(load_job("llama2_7b_fsdp_64"))
    copying = replace(job, plan=replace(job.plan, shard_copies=True))
    before, after = (step_cost(one.model, one.cluster, one.plan, one.efficiency) for one in (job, copying))
    assert 0.02 < after.compute_s.sum() / before.compute_s.sum() - 1.0 < 0.15
    assert (after.end_compute_s == before.end_compute_s).all()


def test_a_job_that_copies_is_written_down_with_its_copies():
    job = stated(load_job("llama2_7b_fsdp_64"))
    job = replace(job, plan=replace(job.plan, shard_copies=True))
    own = captured(job)
    before, after = (step_cost(one.model, one.cluster, one.plan, job.efficiency) for one in (job, own))
    assert after.compute_s.sum() == pytest.approx(before.compute_s.sum(), rel=0.03)


# --- An optimizer on the host: closed forms of its time, and the memory that it frees --------------------------------


MODEL = model("llama-2-7b")
OFFLOAD_PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=2048, dp=8, zero_stage=2)
NODE = cluster("dgx-a100", 8)


def test_the_published_time_of_ten_billion_parameters_on_one_node() -> None:
    assert host_update_s(cluster("dgx-v100", 1), 10e9) == pytest.approx(2.57, rel=0.01)
    assert host_update_s(NODE, 10e9 / 8) == pytest.approx(2.57, rel=0.01)  # eight devices share the node


def test_nodes_update_their_shares_side_by_side() -> None:
    one, four = host_update_s(NODE, 8e9 / 8), host_update_s(cluster("dgx-a100", 32), 8e9 / 32)
    assert four == pytest.approx(one / 4)


def test_a_step_waits_for_the_host_and_holds_no_states() -> None:
    offloaded = replace(OFFLOAD_PLAN, offload_optimizer=True)
    eff = efficiency("ampere")
    end, own = (float(step_cost(MODEL, NODE, plan, eff).end_compute_s[0]) for plan in (offloaded, OFFLOAD_PLAN))
    expected = HOST_UPDATE_S * MODEL.n_params() * eff.correction.optimizer
    assert end - own > 0.8 * expected
    freed = memory(MODEL, NODE, OFFLOAD_PLAN).worst.optimizer_bytes
    assert freed > 8e9
    assert memory(MODEL, NODE, offloaded).worst.optimizer_bytes == 0.0
