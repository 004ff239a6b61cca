"""Upper bounds of descriptions: files, tables and Python meet the same ones."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.bounds import MOST_CV, MOST_DEVICES, MOST_LAYERS, MOST_WIDTH, check_bounds
from prism_jax.core.errors import PlanError, PrismError, SpecError
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.variability.families import LogNormal
from prism_jax.variability.tree import Stall, Variability
from prism_jax.workload.catalog import model
from prism_jax.workload.hugging_face.config import read_hf_config

JOB = """\
model: llama-3-8b
cluster: {preset: dgx-h100}
plan: {tp: 2, pp: 2, dp: 2, micro_batch: 1, global_batch: 8, seq_len: 2048}
"""
SMALL = ParallelPlan(micro_batch=1, global_batch=1)


def test_the_bound_itself_is_allowed() -> None:
    check_bounds(SpecError, "", 5, n=5, m=None)
    with pytest.raises(SpecError, match=r"^here: n = 6, but it must be at most 5$") as error:
        check_bounds(SpecError, "here", 5, m=1, n=6)
    assert error.value.path == ("n",)
    assert replace(model("llama-3-8b"), n_layers=MOST_LAYERS).n_layers == MOST_LAYERS


@pytest.mark.parametrize(
    "field", ["tp", "dp", "cp", "ep", "pp", "virtual_stages", "dp_shard", "seq_len", "grad_bucket"]
)
def test_a_plan_names_the_field_the_value_and_the_bound(field: str) -> None:
    changed: dict[str, Any] = {field: 10**15}
    with pytest.raises(PlanError, match=rf"{field} = 1,000,000,000,000,000, but it must be at most"):
        replace(SMALL, **changed)


def test_the_product_of_degrees_is_bounded() -> None:
    with pytest.raises(PlanError, match=r"= 1073741824, but at most 16,777,216 devices"):
        ParallelPlan(micro_batch=1, global_batch=1, tp=2**15, dp=2**15)


def test_clusters_models_and_spreads_are_bounded() -> None:
    with pytest.raises(SpecError, match="n_devices = "):
        catalog.cluster("dgx-h100", 2 * MOST_DEVICES)
    with pytest.raises(SpecError, match="hidden = "):
        replace(model("llama-3-8b"), hidden=2 * MOST_WIDTH)
    with pytest.raises(SpecError, match="cv = 11, but it must be >= 0 and <= 10"):
        LogNormal(MOST_CV + 1.0)
    with pytest.raises(SpecError, match="65 kinds, but there may be at most 64"):
        Variability(stalls=(Stall(),) * 65)


def test_a_hugging_face_config_is_refused(tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 8,
        "num_hidden_layers": 10**9,
        "vocab_size": 9,
    }
    (tmp_path / "config.json").write_text(json.dumps(sizes | {"model_type": "llama"}))
    with pytest.raises(PrismError, match=r"n_layers = 1,000,000,000, but it must be at most 10,000"):
        read_hf_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["cluster.node_size=16"], "cluster.node_size=16: 16 devices in a node, but the cluster has 8. Use at most 8."),
        (["cluster.node_size=1000000000000"], "must be at most"),
        (["cluster.node_size=8"], ""),
        (["cluster.node_size=8", "plan.dp=1", "plan.global_batch=4"], ""),
        (["cluster.node_size=2"], ""),
    ],
)
def test_a_node_is_no_larger_than_its_cluster(tmp_path: Path, changes: list[str], message: str) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    if message:
        with pytest.raises(SpecError, match=message):
            load_job(tmp_path / "job.yaml", changes)
    else:
        load_job(tmp_path / "job.yaml", changes)
