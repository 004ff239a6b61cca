"""Contradictions of a plan: what the message offers is itself free of that contradiction."""

import re
from dataclasses import replace

import pytest

from prism_jax.job.rules import MAX_CHUNK_RUNS, problems
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.catalog import model

PLAN = ParallelPlan(tp=2, dp=8, micro_batch=1, global_batch=64, seq_len=2048)


def found(plan: ParallelPlan, name: str = "llama-2-7b") -> list[str]:
    return [str(problem) for problem in problems(plan, model(name), cluster("dgx-h100", plan.n_devices))]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"global_batch": 63}, "llama-2-7b"),
        ({"global_batch": 8 * 2**28}, "llama-2-7b"),
        ({"global_batch": 8 * 2**28, "pp": 4}, "llama-2-7b"),
        ({"tp": 3, "sequence_parallel": False}, "llama-2-7b"),
        ({"seq_len": 2047, "cp": 2, "sequence_parallel": False}, "llama-2-7b"),
        ({"ep": 16, "dp": 16}, "mixtral-8x7b"),
        ({"virtual_stages": 2, "pp": 2}, "llama-2-7b"),
    ],
)
def test_the_remedy_removes_the_contradiction(change, name):
    plan = replace(PLAN, **change)
    (problem,) = found(plan, name)
    remedy = re.search(r"(?:Try|Set) (\w+)=(\d+)", problem)
    assert remedy is not None
    assert found(replace(plan, **{remedy[1]: int(remedy[2])}), name) == []


def test_no_plan_takes_hours_to_lay_out():
    assert found(replace(PLAN, global_batch=8 * MAX_CHUNK_RUNS)) == []
    assert "simulated" in found(replace(PLAN, global_batch=8 * (MAX_CHUNK_RUNS + 1)))[0]
