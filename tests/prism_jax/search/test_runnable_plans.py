"""Every plan that a search may offer can be run by the job's framework, as the framework's own documentation has it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.exhaustive import search
from prism_jax.search.plan_costs import FEASIBLE, feasibility
from prism_jax.search.plan_table import kind_of, of_each_kind
from prism_jax.search.space import default_space
from prism_jax.system import catalog
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model

JOBS = [
    ("llama-3-8b", "dgx-h100", 64),
    ("llama-3-8b", "dgx-a100", 8),
    ("llama-3-70b", "dgx-h100", 256),
    ("llama-3-70b", "dgx-a100", 512),
    ("llama-3-405b", "dgx-h100", 1024),
    ("gpt3-175b", "dgx-a100", 512),
    ("gpt3-175b", "dgx-h100", 128),
    ("llama-2-7b", "dgx-a100", 32),
    ("deepseek-v3", "dgx-h100", 1024),
    ("mixtral-8x7b", "dgx-h100", 128),
]


def job_of(name: str, cluster: str, n: int, framework: str) -> Job:
    sharding = "fsdp" if framework == "fsdp" else "none"
    plan = ParallelPlan(1, 2 * n, 4096, tp=1, pp=1, dp=n, recompute="full", attention="flash", sharding=sharding)
    return Job(model(name), catalog.cluster(cluster, n), plan, preset("none"), framework=framework)


def wrong_with_megatron(plan: ParallelPlan, n_layers: int) -> Iterator[str]:
    """--num-layers-per-virtual-pipeline-stage, --use-distributed-optimizer; ZeRO-2 and 3 need its own FSDP."""
    if plan.schedule_name not in ("1f1b", "interleaved"):
        yield f"--schedule {plan.schedule_name}"
    if plan.zero_stage > 1 or plan.sharding != "none":
        yield f"ZeRO-{plan.zero_stage}, {plan.sharding}"
    if n_layers % (plan.pp * plan.virtual_stages):
        yield f"{n_layers} layers in {plan.pp * plan.virtual_stages} chunks"


def wrong_with_fsdp(plan: ParallelPlan, n_layers: int) -> Iterator[str]:
    """fully_shard on a device mesh without pipelines."""
    if plan.pp > 1 or plan.virtual_stages > 1:
        yield f"{plan.pp} stages"
    if plan.sharding not in ("fsdp", "hsdp") and plan.dp > 1:
        yield "states that are not sharded"


def wrong_with_deepspeed(plan: ParallelPlan, n_layers: int) -> Iterator[str]:
    """ZeRO over data parallelism."""
    if plan.pp > 1 or plan.tp > 1:
        yield "model parallelism"
    if plan.sharding != "none":
        yield plan.sharding


def wrong_with_nanotron(plan: ParallelPlan, n_layers: int) -> Iterator[str]:
    """parallelism: dp, pp, tp, expert_parallel_size, pp_engine (afab or 1f1b); optimizer.zero_stage 0 or 1."""
    if plan.schedule_name not in ("gpipe", "1f1b") or plan.virtual_stages > 1:
        yield plan.schedule_name
    if plan.zero_stage > 1 or plan.sharding != "none" or plan.cp > 1:
        yield f"ZeRO-{plan.zero_stage}, {plan.sharding}, cp {plan.cp}"


WRONG = {
    "megatron-core": wrong_with_megatron,
    "fsdp": wrong_with_fsdp,
    "deepspeed": wrong_with_deepspeed,
    "nanotron": wrong_with_nanotron,
}


@pytest.mark.parametrize("framework", WRONG)
@pytest.mark.parametrize(("name", "cluster", "n"), JOBS)
def test_every_plan_of_a_space_can_be_run(name, cluster, n, framework):
    job = job_of(name, cluster, n, framework)
    evaluator = Evaluator(job, default_space(job), job.software.memory_margin)
    n_layers = model(name).n_layers
    rng = np.random.default_rng(0)
    wrong = []
    for index in range(len(evaluator.layouts)):
        table = evaluator.block(index)
        rows = rng.permutation(np.flatnonzero(feasibility(table, evaluator.costs)[0] == FEASIBLE))[:20]
        for row in rows:
            plan = table.plan(int(row))
            wrong += [(text, plan) for text in WRONG[framework](plan, n_layers)]
    assert wrong == []


def test_without_the_framework_there_are_plans_that_it_cannot_run():
    job = job_of("llama-3-70b", "dgx-h100", 256, "megatron-core")
    evaluator = Evaluator(job, default_space(job, any_framework=True))
    tables = [evaluator.block(index) for index in range(len(evaluator.layouts))]
    plans = [table.plan(0) for table in tables if len(table)]
    assert any([*wrong_with_megatron(plan, model("llama-3-70b").n_layers)] for plan in plans)


def test_values_of_the_own_plan_stay_in_the_space():
    job = load_job("deepseek_v3_2048")
    assert job.plan.schedule_name in default_space(replace(job, framework="megatron-core")).schedule


def test_plans_leave_the_margin_free(job, space):
    hbm = job.cluster.device.hbm_bytes
    few = replace(space, pp=(1, 2), cp=(1,), schedule=("1f1b",))
    most = {
        margin: max(c.memory_bytes for c in search(job, few, top=3, memory_margin=margin).candidates)
        for margin in (0.0, 0.5)
    }
    assert most[0.5] <= 0.5 * hbm < most[0.0] <= hbm


def test_the_first_plans_of_each_kind_are_the_fastest_of_it(evaluator):
    bound = evaluator.bounds().bound_s
    listed = of_each_kind(evaluator, bound, 6)
    kinds = {kind_of(evaluator.plan(int(number))) for number in listed}
    assert len(kinds) == 6
    all_kinds = [kind_of(evaluator.plan(number)) for number in range(len(bound))]
    for kind in kinds:
        own = [number for number, other in enumerate(all_kinds) if other == kind and np.isfinite(bound[number])]
        assert min(own, key=lambda number: bound[number]) in listed
    fastest = sorted(kinds, key=lambda k: min(b for b, o in zip(bound, all_kinds, strict=True) if o == k and b == b))
    others = {k for k, b in zip(all_kinds, bound, strict=True) if np.isfinite(b)} - kinds
    worst = min(b for b, o in zip(bound, all_kinds, strict=True) if o == fastest[-1] and b == b)
    assert all(b >= worst for b, o in zip(bound, all_kinds, strict=True) if o in others and b == b)
