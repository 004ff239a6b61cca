"""Jobs of the gate: presets of models, clusters and frameworks put together by a fixed rule.

Every framework has recipes, the plans that its users write. A recipe is tried for every model, cluster, number of devices and
precision; what cannot run is left out, and of what can run a share is kept, chosen by the name of the job alone: another preset
leaves all other jobs as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any
from zlib import crc32

from prism_jax.core.errors import PrismError
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import default_for, preset
from prism_jax.workload.catalog import model

ONE_OF = 28  # jobs that can run of which one is kept: about 1,000 remain
MODELS = (
    "gpt3-7.5b", "gpt3-175b", "bloom-176b", "mpt-7b", "llama-2-7b", "llama-2-70b", "llama-3.2-1b", "llama-3-8b",
    "llama-3-405b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b", "gemma-2-27b", "qwen2.5-32b", "qwen3-30b-a3b",
)  # fmt: skip
CLUSTERS = (
    "dgx-v100", "dgx-a100", "pcie-a100", "aws-p4d", "pcie-l40s", "dgx-h100", "aws-p5", "h200", "gh200-alps", "b200",
    "gb200-nvl72", "mi300x", "mi355x", "tpu-v5p-pod",
)  # fmt: skip
DEVICES = (8, 64, 512, 4096)
PRECISIONS = ("fp16", "bf16", "fp8")
RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "megatron-core": {
        "tp2": {"tp": 2, "zero_stage": 1, "sequence_parallel": True},
        "tp4-pp4": {"tp": 4, "pp": 4, "zero_stage": 1, "sequence_parallel": True},
        "tp8-pp8-v2": {
            "tp": 8, "pp": 8, "virtual_stages": 2, "schedule": "interleaved", "zero_stage": 1, "recompute": "full",
        },
        "ep8-pp2": {"ep": 8, "pp": 2, "zero_stage": 1},
        "tp2-cp2": {"tp": 2, "cp": 2, "zero_stage": 1, "sequence_parallel": True, "seq_len": 16384},
    },
    "megatron-deepspeed": {"tp2-pp4": {"tp": 2, "pp": 4, "zero_stage": 1}},
    "fsdp": {"fsdp": {"sharding": "fsdp"}, "hsdp": {"sharding": "hsdp", "dp_shard": 8, "recompute": "full"}},
    "deepspeed": {f"zero{stage}": {"zero_stage": stage} for stage in (1, 3)},
    "nanotron": {"dp": {"zero_stage": 1}, "tp4-pp2": {"tp": 4, "pp": 2, "zero_stage": 1}},
    "jax": {"fsdp-tp4": {"sharding": "fsdp", "tp": 4}},
    "": {"zero1": {"zero_stage": 1}, "tp8": {"tp": 8}},
}  # fmt: skip


@dataclass(frozen=True)
class GateJob:
    """A job and what it is told apart by."""

    job: Job
    framework: str
    generation: str
    precision: str
    n_devices: int


def gate_jobs(one_of: int = ONE_OF) -> list[GateJob]:
    """All jobs, or fewer where `one_of` is larger."""
    return list(_jobs(one_of))


def _jobs(one_of: int) -> Iterator[GateJob]:
    recipes = [(framework, name, fields) for framework, own in RECIPES.items() for name, fields in own.items()]
    for (framework, recipe, fields), spec, machine, n, dtype in product(recipes, MODELS, CLUSTERS, DEVICES, PRECISIONS):
        id = f"{framework or 'unknown'}/{recipe}/{spec}/{machine}/{n}/{dtype}"
        if crc32(id.encode()) % one_of:
            continue
        try:
            job = _job(id, framework, fields, spec, machine, n, dtype)
            job.check()
            job.efficiency  # noqa: B018  (says whether there are constants for the device)
        except PrismError:
            continue
        yield GateJob(job, framework or "unknown", job.cluster.device.generation, dtype, n)


def _job(id: str, framework: str, fields: dict[str, Any], spec: str, machine: str, n: int, dtype: str) -> Job:
    devices = cluster(machine, n)
    held = fields.get("tp", 1) * fields.get("pp", 1) * fields.get("cp", 1)
    dp = max(1, n // held)
    micro_batches = 2 * fields.get("pp", 1) + 2
    given = {"seq_len": 4096, "dp": dp, "micro_batch": 1, "global_batch": dp * micro_batches, "dtype": dtype, **fields}
    return Job(model(spec), devices, ParallelPlan(**given), preset(default_for(devices.device)), id, framework)
