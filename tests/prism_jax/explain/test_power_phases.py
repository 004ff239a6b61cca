"""Phases for the power of a step: they sum to the breakdown, and what compute loses to communication stands alone."""

import pytest

from prism_jax import Job, ParallelPlan
from prism_jax.cost.step import step_cost
from prism_jax.explain.explain import power_phases
from prism_jax.system.catalog import cluster
from prism_jax.system.power import step_power
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model

BREAKDOWN = {
    "compute": 1.0,
    "tp_comm": 0.05,
    "dp_comm": 0.1,
    "bubble": 0.2,
    "stalls": 0.0,
    "waiting_for_stragglers": 0.02,
}


def job(n_devices: int) -> Job:
    plan = ParallelPlan(micro_batch=2, global_batch=2 * n_devices, seq_len=4096, dp=n_devices, sharding="fsdp")
    return Job(model("llama2-7b"), cluster("dgx-h100", n_devices), plan, preset("none"), "llama", "fsdp")


def test_phases_sum_to_the_breakdown_and_are_known_to_the_law() -> None:
    found = power_phases(job(16), BREAKDOWN)
    assert sum(found.values()) == pytest.approx(sum(BREAKDOWN.values()))
    assert {name: found[name] for name in BREAKDOWN if name != "compute"} == {
        name: value for name, value in BREAKDOWN.items() if name != "compute"
    }
    assert step_power(found, job(16).cluster.device) is not None


def test_what_compute_loses_is_that_of_the_cost_model() -> None:
    one = job(2048)
    cost = step_cost(one.model, one.cluster, one.plan, one.efficiency)
    lost = one.efficiency.overlap_slowdown * cost.hidden_comm_s.sum() / cost.compute_s.sum()
    assert power_phases(one, BREAKDOWN)["slowed"] == pytest.approx(lost)
    assert power_phases(one, BREAKDOWN)["slowed"] > power_phases(job(16), BREAKDOWN)["slowed"] > 0.0


def test_a_job_on_one_gpu_loses_nothing() -> None:
    assert power_phases(job(1), BREAKDOWN)["slowed"] == 0.0
