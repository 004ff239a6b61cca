"""Power per GPU of Llama-2 7B under FSDP on 128 and 2,048 GPUs, from the breakdown of the predicted step.

Published (arXiv 2411.13055): throughput per GPU -37.22%, power per GPU -5.87%. The published throughputs alone, with the share
of compute at 128 GPUs that this package predicts, are a second way to the power: what the law makes of a right prediction.
"""

from __future__ import annotations

from prism_jax import Job, ParallelPlan
from prism_jax.explain.explain import power_phases
from prism_jax.prediction.predict import explain_step
from prism_jax.system import catalog as systems
from prism_jax.system.power import step_power
from prism_jax.variability.config import default_for, preset
from prism_jax.workload import catalog as workloads

PUBLISHED_THROUGHPUT, PUBLISHED_POWER = -0.3722, -0.0587


def llama() -> dict[str, dict[str, float]]:
    """Changes from 128 to 2,048 GPUs."""
    few, many = _phases(128), _phases(2048)
    before, after = _watts(few), _watts(many)
    waiting = {name: seconds for name, seconds in few.items() if name not in ("gemm", "attention", "memory")}
    grown = sum(few.values()) / (1.0 + PUBLISHED_THROUGHPUT) - sum(few.values())
    given = few | {"dp_comm": waiting.get("dp_comm", 0.0) + grown}
    return {
        "Llama-2 7B, 128 to 2,048 H100": {
            "throughput_change": round(sum(few.values()) / sum(many.values()) - 1.0, 4),
            "power_change": round(after / before - 1.0, 4),
            "power_change_at_published_throughput": round(_watts(given) / before - 1.0, 4),
            "power_change_trivial": 0.0,
        }
    }


def _phases(n_devices: int) -> dict[str, float]:
    model, system = workloads.model("llama2-7b"), systems.cluster("dgx-h100", n_devices)
    plan = ParallelPlan(
        micro_batch=2, global_batch=2 * n_devices, seq_len=4096, dp=n_devices, sharding="fsdp", dtype="bf16"
    )
    job = Job(model, system, plan, preset(default_for(system.device)), "llama", "fsdp")
    return power_phases(job, explain_step(job).breakdown_s)


def _watts(phases: dict[str, float]) -> float:
    found = step_power(phases, systems.cluster("dgx-h100", 8).device)
    assert found is not None
    return float(found.watts)
