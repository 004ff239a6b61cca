"""What a job's framework says of its plan, and what a job file leaves open."""

from pathlib import Path
from typing import Any

import pytest

from prism_jax.calibration.open_fields import IMBALANCE, NETWORK, VIRTUAL_STAGES, between_nodes
from prism_jax.core.errors import ConfigError
from prism_jax.framework.frameworks import EITHER, FRAMEWORKS, RUNS_ON, runs_on
from prism_jax.job.framework_notes import framework_notes
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.system import catalog
from prism_jax.validation.job_table import read_job_table


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
    assert job(name, tp=1, pp=1, dp=8, zero_stage=3, model="llama-3-8b").framework == "deepspeed"


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
