"""Identities that every model of transformer layers keeps: blocks against totals, kernels against FLOPs, plans."""

from dataclasses import replace
from typing import Any

import pytest

from prism_jax.cost.memory import memory
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.plan_table import PlanCache, PlanTable
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.workload import distinct_runs
from prism_jax.workload.catalog import workload
from tests.support.blocks import flops_of_kernels, params_of_blocks

SEQUENCES = ("bert-large", "bert-large-mlperf", "roberta-base", "t5-base", "mt5-small")
IMAGES = ("vit-b-16", "vit-h-14", "dit-xl-2")
MODELS = (*SEQUENCES, *IMAGES)
PLAN = ParallelPlan(micro_batch=4, global_batch=128, seq_len=512, dp=16)


def plan_of(name: str, **changes: Any) -> ParallelPlan:
    """With a length of sequence where samples have one."""
    return replace(PLAN, seq_len=512 if name in SEQUENCES else 0, **changes)


@pytest.mark.parametrize("name", MODELS)
def test_blocks_hold_all_parameters(name: str) -> None:
    model = workload(name)
    assert params_of_blocks(model, plan_of(name)) == model.n_params()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attention", ["flash", "unfused"])
@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
def test_kernels_do_the_flops_of_a_step(name: str, attention: str, recompute: str) -> None:
    model, plan = workload(name), plan_of(name, attention=attention, recompute=recompute)
    flops = model.step_flops(plan, recomputed=True)
    assert flops_of_kernels(model, plan) == pytest.approx(flops, rel=1e-4)
    assert model.step_flops(plan, recomputed=False) <= flops


@pytest.mark.parametrize("name", MODELS)
def test_tensor_parallelism_divides_products_and_keeps_their_sum(name: str) -> None:
    model = workload(name)
    whole, split = flops_of_kernels(model, plan_of(name)), flops_of_kernels(model, plan_of(name, tp=2, dp=8))
    assert split == pytest.approx(whole, rel=0.02)  # heads that are whole on every rank
    assert params_of_blocks(model, plan_of(name, tp=2)) < 0.6 * model.n_params()


@pytest.mark.parametrize("name", MODELS)
def test_deeper_models_have_more_layers_of_their_own(name: str) -> None:
    model = workload(name)
    n_body = sum(run.count for run in model.layout if run.place == "body")
    deeper = model.deeper(4)
    assert sum(run.count for run in deeper.layout if run.place == "body") == n_body + 4
    assert deeper.n_params() > model.n_params()


@pytest.mark.parametrize("name", MODELS)
def test_memory_falls_with_recomputation_and_sharding(name: str) -> None:
    model, machine = workload(name), cluster("dgx-a100", 16)

    def used(**changes: Any) -> Any:
        return memory(model, machine, plan_of(name, **changes)).stages[0]

    assert used(recompute="full").activations_bytes < used().activations_bytes
    assert used(attention="unfused").activations_bytes > used().activations_bytes
    assert used(zero_stage=1).optimizer_bytes == pytest.approx(used().optimizer_bytes / 16)


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_cache_of_plans_sees_what_blocks_read(name: str) -> None:
    """Lengths of their own must not hide the plan's fields from the cache of a sweep."""
    model = workload(name)
    plans = [
        replace(PLAN, seq_len=length, micro_batch=b, tp=tp) for length in (128, 512) for b in (2, 4) for tp in (1, 2)
    ]
    for run in distinct_runs(model):
        kind = run.kind

        def flops(plan: ParallelPlan, kind: str = kind) -> float:
            return model.block(kind, plan).kernels.flops()

        cache = PlanCache(flops)
        for plan in plans:
            values, which = cache.look_up(PlanTable.of(plan))
            assert values[which[0]] == flops(plan)
