"""Rules between the parts of a job, and fleets in words."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.job.fleet import cluster_of, fleets_of, job_on, shared_batch
from prism_jax.job.job import Job
from prism_jax.job.rules import MAX_CHUNK_RUNS, problems
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import default_for, preset
from prism_jax.variability.tree import Variability
from prism_jax.workload.catalog import model
from tests.support.jobs import MODEL

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


# --- Fleets: their clusters, the job on them, the batch that they can share ------------------------------------------


CLUSTER = catalog.cluster("llama3-h100", 64)
JOB = Job(MODEL, CLUSTER, ParallelPlan(1, 64, 512, dp=64), preset(default_for(CLUSTER.device)))


def test_a_fleet_of_the_jobs_own_device_has_its_network_others_the_usual_one() -> None:
    own, preset_, usual = (cluster_of(fleet, JOB) for fleet in fleets_of(["128xH100-SXM", "16xaws-p5", "32 x b200"]))
    assert (own.name, own.n_devices) == ("llama3-h100", 128)
    assert (preset_.name, preset_.device.name) == ("aws-p5", "h100-sxm")
    assert (usual.name, usual.n_devices) == ("b200", 32)


def test_a_moved_job_has_the_variability_of_its_device_unless_it_states_its_own() -> None:
    there = catalog.cluster("dgx-a100", 64)
    assert job_on(JOB, there).variability == preset(default_for(there.device))
    none = Variability("none")
    assert job_on(replace(JOB, variability=none), there).variability == none
    assert job_on(JOB, catalog.cluster("dgx-a100", 48)).plan.global_batch == 48


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_shared_batch_has_every_odd_factor_of_the_devices(batch: int, n_devices: int) -> None:
    found = shared_batch(batch, n_devices)
    odd = n_devices
    while odd % 2 == 0:
        odd //= 2
    assert found % odd == 0
    assert found == batch or batch % odd
    assert odd > batch or batch / 2 <= found <= 2 * batch


@pytest.mark.parametrize("text", ["", "x", "0xh200", "-8xh200", "1.5xh200", "8", "8x", "1e3xh200", "9999999999xh200"])
def test_what_is_no_fleet_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="512xh200"):
        fleets_of([text])
