"""What is written for a framework comes back the same from the import; what it cannot say is named; files are safe."""

from pathlib import Path
from typing import Any

import pytest

from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.launch.export_job import EXPORTERS, exported, write_files
from prism_jax.launch.import_job import import_job
from tests.prism_jax.launch.random_jobs import jobs, megatron_model, megatron_plan

SIZES = ["n_layers", "hidden", "n_heads", "kv_heads", "qk_head_dim", "ffn_hidden", "vocab", "gated", "norm", "position",
         "tied_embeddings", "bias", "has_qkv_bias", "qk_norm", "mla", "dropout"]  # fmt: skip
EXPERTS = ["n_experts", "top_k", "ffn_hidden", "shared_width", "router_bias", "n_dense_first", "every", "capacity_factor"]
DEGREES = ["tp", "pp", "cp", "dp", "ep", "expert_tp", "n_devices", "micro_batch", "global_batch", "seq_len"]
OF_MEGATRON = [*DEGREES, "virtual_stages", "schedule_name", "sequence_parallel", "zero_stage", "recompute", "recompute_modules",
               "recompute_method", "dtype", "fp8_recipe", "bf16_layers", "fused_grad_accumulation", "offload_optimizer",
               "state_dtypes", "bucket_elements"]  # fmt: skip


def back(job: Job, name: str, folder: Path) -> Job:
    """The job that the import makes of what is exported."""
    files = write_files(folder, exported(job, EXPORTERS.named(name)).files)
    import_job(files[0], device=job.cluster.device.name, output=folder / "back.yaml")
    return load_job(folder / "back.yaml")


def unlike(one: Any, other: Any, names: list[str]) -> list[str]:
    return [
        f"{name}: {getattr(one, name)} became {getattr(other, name)}"
        for name in names
        if getattr(one, name) != getattr(other, name)
    ]


def of_megatron(job: Job, read: Job) -> list[str]:
    plan, other = job.plan, read.plan
    found = unlike(job.model, read.model, SIZES) + unlike(plan, other, OF_MEGATRON)
    if job.model.moe is not None:
        found += unlike(job.model.moe, read.model.moe, EXPERTS)
    from prism_jax.cost.partition import layers_of_chunks

    chunks = layers_of_chunks(job.model.n_layers, plan) != layers_of_chunks(read.model.n_layers, other)
    found += ["layer_split"] if chunks else []
    alike = plan.optimizer == other.optimizer or {plan.optimizer, other.optimizer} == {"adam", "adamw"}
    found += [] if alike else [f"optimizer: {plan.optimizer} became {other.optimizer}"]
    if plan.dp * plan.cp > 1 and plan.overlap.dp != other.overlap.dp:
        found.append("overlap.dp")
    if plan.sequence_parallel and plan.overlap.tp != other.overlap.tp:
        found.append("overlap.tp")
    if plan.pp > 1 and plan.overlap.pp != other.overlap.pp:
        found.append("overlap.pp")
    if [plan.stride(axis) for axis in plan.axis_order if getattr(plan, axis) > 1] != [
        other.stride(axis) for axis in plan.axis_order if getattr(plan, axis) > 1
    ]:
        found.append("axis_order")
    stated = {name: getattr(plan.software, name) for name in ("attention", "cuda_graphs") if name not in job.open_software}
    found += [f"software.{name}" for name, value in stated.items() if getattr(other.software, name) != value]
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_megatron_reads_back_what_was_written(seed: int, tmp_path: Path) -> None:
    for job in jobs(megatron_model, megatron_plan, 50, seed, "megatron-core", ["dgx-h100", "b200"]):
        assert of_megatron(job, back(job, "megatron", tmp_path)) == [], (job.plan, job.model)
