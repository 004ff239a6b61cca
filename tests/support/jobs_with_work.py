"""Jobs whose micro-batches hold unlike work: padded, masked and bucketed documents, sharded states, experts, and both."""

from dataclasses import replace
from typing import Any

from prism_jax.job.job import Job
from prism_jax.job.read_tables import lengths_of
from prism_jax.plan.packing import Data
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.routing import ExpertRouting

LONG = {"kind": "log_normal", "cv": 1.2, "mean": 900}
MIXED = {"kind": "mixture", "bulk_cv": 0.4, "slow_prob": 0.1, "slow_factor": 9.0, "slow_cv": 0.5, "mean": 600}


def job(name: str, lengths: Any = None, packing: str = "masked", gini: float = 0.0, **fields: Any) -> Job:
    spec = model(name)
    if gini:
        assert spec.moe is not None
        spec = replace(spec, moe=replace(spec.moe, routing=ExpertRouting(gini)))
    data = Data() if lengths is None else Data(lengths_of(lengths), packing)
    plan = ParallelPlan(**{"micro_batch": 1, "seq_len": 4096, "zero_stage": 1, "data": data} | fields)
    return Job(
        spec, cluster("dgx-h100", max(8, plan.n_devices)), plan, preset("h100-default"), framework="megatron-core"
    )


JOBS = {
    "padded": lambda: job("llama-3-8b", LONG, "padded", micro_batch=2, global_batch=128, dp=8, tp=2, pp=2),
    "masked": lambda: job("llama-3-8b", LONG, "masked", global_batch=64, dp=16, tp=4, pp=4, seq_len=8192),
    "bucketed": lambda: job("llama-3-8b", MIXED, "bucketed", micro_batch=2, global_batch=256, dp=32, tp=2),
    "sharded": lambda: job("llama-3-8b", LONG, "padded", global_batch=64, dp=16, sharding="hsdp", dp_shard=4, tp=2),
    "experts": lambda: job("mixtral-8x7b", gini=0.2, global_batch=128, dp=32, tp=2, pp=4, ep=8, seq_len=4096),
    "both": lambda: job("mixtral-8x7b", LONG, gini=0.38, global_batch=64, dp=16, tp=2, pp=4, ep=4),
}


def balanced() -> Job:
    """Replicas share out the documents of a step."""
    return job("llama-3-8b", LONG, "balanced", global_batch=128, dp=16, tp=2, seq_len=16384, recompute="full")


def drifting(drift: float, gini: float = 0.2, **fields: Any) -> Job:
    shape: dict[str, Any] = {"global_batch": 128, "dp": 32, "tp": 2, "pp": 4, "ep": 8} | fields
    own = job("mixtral-8x7b", **shape)
    return replace(own, model=with_routing(own.model, ExpertRouting(gini, drift)))


def with_routing(spec: Any, routing: ExpertRouting) -> Any:
    return replace(spec, moe=replace(spec.moe, routing=routing))


POPULAR = {
    "stages": lambda: drifting(0.1),
    "uneven": lambda: drifting(0.5, 0.38, pp=2, dp=16),
    "one stage": lambda: drifting(0.1, pp=1, dp=16, global_batch=64),
}
