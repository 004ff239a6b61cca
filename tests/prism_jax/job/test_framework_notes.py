"""What a job's framework says of its plan, what a job file leaves open, and rules between the parts of a job."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from prism_jax.calibration.open_fields import IMBALANCE, NETWORK, VIRTUAL_STAGES, between_nodes
from prism_jax.core.errors import ConfigError, DataError
from prism_jax.framework.frameworks import EITHER, FRAMEWORKS, RUNS_ON, runs_on
from prism_jax.job.fleet import cluster_of, fleets_of, job_on, shared_batch
from prism_jax.job.framework_notes import framework_notes
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.job.rules import MAX_CHUNK_RUNS, problems
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.catalog import cluster
from prism_jax.validation.job_table import read_job_table
from prism_jax.variability.config import default_for, preset
from prism_jax.variability.tree import Variability
from prism_jax.workload.catalog import model
from tests.support.jobs import MODEL


def job(framework: str = "", model: str = "llama-3-70b", **plan: object) -> Job:
    fields = {"tp": 8, "pp": 4, "dp": 2, "micro_batch": 1, "global_batch": 64, "seq_len": 4096, **plan}
    data = {"model": model, "cluster": "dgx-h100", "plan": fields}
    return load_job({**data, "framework": framework} if framework else data)


def test_every_name_stands_for_a_framework_of_ours_and_none_is_one() -> None:
    assert set(RUNS_ON.values()) <= set(FRAMEWORKS.names)
    assert not (set(RUNS_ON) | EITHER) & set(FRAMEWORKS.names)
    assert not set(RUNS_ON) & EITHER


# fmt: off
NAMES = {
    "torchtitan": "fsdp", "TorchTitan": "fsdp", "ddp": "fsdp", "PyTorch DDP": "fsdp",
    "fsdp2": "fsdp", "nemo": "megatron-core", "Megatron-LM": "megatron-core", "megatron_bridge": "megatron-core",
    "maxtext": "jax", "Levanter": "jax", "GPT-NeoX": "megatron-deepspeed",
}
# fmt: on


@pytest.mark.parametrize("name", NAMES)
def test_software_is_taken_for_what_it_runs_on_and_that_is_said(name: str) -> None:
    own, framework = job(name), NAMES[name]
    assert own.framework == framework
    assert own == job(framework)
    (note,) = (note for note in framework_notes(own) if note.startswith("assumed framework"))
    assert f"assumed framework: {framework}, which {name} runs on" in note
    assert not any(note.startswith("assumed") for note in framework_notes(job(framework)))


@pytest.mark.parametrize("name", sorted(EITHER))
def test_trainers_run_on_deepspeed_where_the_plan_has_a_zero_stage(name: str) -> None:
    assert (runs_on(name), runs_on(name, 2)) == ("fsdp", "deepspeed")
    plan = {"tp": 1, "pp": 1, "dp": 8, "zero_stage": 3, "model": "llama-3-8b"}
    assert job(name, **plan).framework == "deepspeed"
    assert job(name, **plan, sharding="fsdp").framework == "fsdp"  # shards as FSDP names them


def test_unknown_software_is_refused() -> None:
    with pytest.raises(ConfigError, match="'bogus' must be one of megatron-core"):
        job("bogus")


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            {"framework": "megatron-core", "zero_stage": 2, "pp": 1},
            "zero_stage = 2, but framework megatron-core has 0, 1",
        ),
        ({"framework": "nemo", "zero_stage": 3, "pp": 1}, "zero_stage = 3, but framework megatron-core has 0, 1"),
        (
            {"framework": "nanotron", "schedule": "interleaved", "virtual_stages": 2},
            "schedule = interleaved, but framework nanotron",
        ),
        ({"framework": "deepspeed"}, "tp = 8, but framework deepspeed has at most 1"),
        ({"framework": "deepspeed", "tp": 1}, "schedule = 1f1b, but framework deepspeed has no pipelines"),
        (
            {"framework": "megatron-2021", "sequence_parallel": True},
            "framework megatron-2021 has no sequence parallelism",
        ),
        ({"pp": 3, "dp": 2}, "80 layers are not divided by pp = 3: chunks of 26 and 27 layers are assumed"),
        (
            {"framework": "megatron-core", "schedule": "interleaved", "virtual_stages": 3},
            "80 layers are not divided by pp x virtual_stages = 12, and framework megatron-core refuses that",
        ),
        ({"tp": 16, "dp": 1}, "tp = 16 is more than the 8 KV heads of model llama-3-70b: 2 GPUs hold each"),
        ({"tp": 1, "sequence_parallel": True}, "sequence_parallel is without effect at tp = 1"),
        ({"dp": 1, "zero_stage": 1}, "zero_stage = 1 is without effect at dp = 1"),
    ],
)
def test_what_a_framework_does_not_have_and_splits_that_are_uneven_are_said(plan: dict[str, Any], said: str) -> None:
    found = framework_notes(job(**plan))
    assert any(said in note for note in found), found


def test_a_plan_that_comes_out_even_has_nothing_to_say() -> None:
    assert framework_notes(job("megatron-core", zero_stage=1, sequence_parallel=True)) == ()
    split = (20, 20, 20, 20)
    assert framework_notes(job("megatron-core", layer_split=list(split))) == ()


# --- Open fields -----------------------------------------------------------------------------------------------------


PLAN = {"tp": 2, "ep": 4, "dp": 8, "micro_batch": 1, "global_batch": 64, "seq_len": 2048}
DENSE, EXPERTS = "llama3-8b", "mixtral-8x7b"
SITE = {"device": "h100-sxm", "n_devices": 16}


def opened(model: object, cluster: object, **plan: object) -> set[str]:
    """Names of the open fields of a job that are none of its software's."""
    job = load_job({"model": model, "cluster": cluster, "framework": "megatron-core", "plan": PLAN | plan})
    return {field.name for field in job.open_fields if not field.name.startswith("software.")} - {"plan.etp"}


@pytest.mark.parametrize(
    ("model", "cluster", "found"),
    [
        (DENSE, SITE, {NETWORK}),
        (DENSE, {"preset": "dgx-h100", "n_devices": 16}, set()),
        (DENSE, "dgx-h100", set()),
        (EXPERTS, "dgx-h100", {IMBALANCE}),
        ({"preset": EXPERTS, "moe": {"imbalance": 1.0}}, "dgx-h100", set()),
        ({"preset": EXPERTS, "moe": {"imbalance": 1.3}}, "dgx-h100", set()),
        ({"preset": EXPERTS, "moe": {"capacity_factor": 1.0}}, "dgx-h100", set()),
        (EXPERTS, SITE, {NETWORK, IMBALANCE}),
    ],
)
def test_fabric_and_routing_are_open_where_a_file_leaves_them_out(model, cluster, found) -> None:
    assert opened(model, cluster, **({} if model is not DENSE else {"ep": 1})) == found


def test_one_node_has_no_fabric() -> None:
    assert opened(DENSE, {"device": "h100-sxm", "n_devices": 8}, ep=1, dp=4) == set()


def test_an_open_field_moves_a_step_by_its_mean_and_a_stated_one_by_nothing() -> None:
    open_, stated = (
        load_job({"model": DENSE, "cluster": cluster, "plan": PLAN | {"ep": 1}})
        for cluster in (SITE, {"preset": "dgx-h100", "n_devices": 16})
    )
    assert open_.cluster.tiers == stated.cluster.tiers
    others = [[one for one in job.open_fields if one.name != NETWORK] for job in (open_, stated)]
    assert [(one.name, one.mean) for one in others[0]] == [(one.name, one.mean) for one in others[1]]


def test_bandwidth_between_nodes_alone_changes() -> None:
    cluster = catalog.cluster("dgx-h100", 64)
    half = between_nodes(cluster, 0.5)
    assert half.tiers[0] == cluster.tiers[0]
    assert [tier.bytes_per_s for tier in half.tiers[1:]] == [0.5 * tier.bytes_per_s for tier in cluster.tiers[1:]]


def test_blanks_of_a_table_are_open_and_values_are_not(tmp_path: Path) -> None:
    """Precision and chunks per stage: a table that leaves a field blank says that nobody stated it."""
    columns = "model,cluster,framework,plan.tp,plan.pp,plan.dp,plan.micro_batch,plan.global_batch,plan.seq_len"
    row = "llama3-8b,dgx-h100,megatron-core,2,4,2,1,64,2048"
    file = tmp_path / "runs.csv"
    file.write_text(
        f"{columns},plan.dtype,plan.schedule,step_time_s\n{row},,,3.0\n{row},bf16,1f1b,3.0\n{row},bf16,,3.0\n"
    )
    found = [
        {field.name for field in run.job.open_fields if field.name.startswith("plan.")} for run in read_job_table(file)
    ]
    assert found == [{"plan.dtype", f"plan.{VIRTUAL_STAGES}"}, set(), {f"plan.{VIRTUAL_STAGES}"}]


# --- Rules between the parts of a job, and fleets in words -----------------------------------------------------------


RULES_PLAN = ParallelPlan(tp=2, dp=8, micro_batch=1, global_batch=64, seq_len=2048)


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
    plan = replace(RULES_PLAN, **change)
    (problem,) = found(plan, name)
    remedy = re.search(r"(?:Try|Set) (\w+)=(\d+)", problem)
    assert remedy is not None
    assert found(replace(plan, **{remedy[1]: int(remedy[2])}), name) == []


def test_no_plan_takes_hours_to_lay_out():
    assert found(replace(RULES_PLAN, global_batch=8 * MAX_CHUNK_RUNS)) == []
    assert "simulated" in found(replace(RULES_PLAN, global_batch=8 * (MAX_CHUNK_RUNS + 1)))[0]


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
