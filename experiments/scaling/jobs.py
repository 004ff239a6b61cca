"""The jobs of the scaling study: three Llama models under FSDP on four generations of GPUs, 4,096 tokens per sequence."""

from __future__ import annotations

from dataclasses import dataclass

from prism_jax import Job, ParallelPlan
from prism_jax.study.scaling import Mode, job_of_size
from prism_jax.system import catalog as systems
from prism_jax.variability.config import default_for, preset
from prism_jax.workload import catalog as workloads

CLUSTERS = ("dgx-v100", "dgx-a100", "dgx-h100", "b200")
MODELS = ("llama-3.2-1b", "llama-2-7b", "llama-3-70b")
SIZES = tuple(8 << k for k in range(14))
MODES: tuple[Mode, ...] = ("weak", "strong")
BASE = 64  # GPUs of the job that is scaled
PER_GPU = 2  # sequences at the base: in weak scaling at every size


@dataclass(frozen=True)
class ScalingTask:
    """One job of the study."""

    cluster: str
    model: str
    mode: Mode
    n_devices: int


def job_of(task: ScalingTask) -> Job:
    """The job of a task: parameters sharded over all GPUs, one sequence at a time."""
    system = systems.cluster(task.cluster, BASE)
    dtype = "fp16" if "bf16" not in system.device.peak_flops_per_s else "bf16"
    plan = ParallelPlan(
        micro_batch=1,
        global_batch=PER_GPU * BASE if task.mode == "weak" else 1024,
        seq_len=4096,
        dp=BASE,
        sharding="fsdp",
        dtype=dtype,
        recompute="full",
    )
    job = Job(workloads.model(task.model), system, plan, preset(default_for(system.device)), task.model, "fsdp")
    return job_of_size(job, task.n_devices, task.mode)


def tasks() -> list[ScalingTask]:
    """All of them."""
    return [
        ScalingTask(cluster, model, mode, n)
        for cluster in CLUSTERS
        for model in MODELS
        for mode in MODES
        for n in SIZES
    ]
