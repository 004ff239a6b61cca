"""What a job file leaves unsaid is open, what it states is not."""

from pathlib import Path

import pytest

from prism_jax.calibration.open_fields import IMBALANCE, NETWORK, VIRTUAL_STAGES, between_nodes
from prism_jax.job.load_job import load_job
from prism_jax.system import catalog
from prism_jax.validation.job_table import read_job_table

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
