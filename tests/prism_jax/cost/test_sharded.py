"""Copies around the collectives of sharded parameters, as FSDP2 makes them; see `cost.sharded.copy_kernels`."""

from collections import defaultdict
from dataclasses import replace

import pytest

from experiments.capture.spec.run import captured, stated
from prism_jax import load_job
from prism_jax.cost.block_cost import Gathered, copy_kernels
from prism_jax.cost.step import step_cost
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import ParallelPlan

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
