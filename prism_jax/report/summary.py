"""A prediction as one plain object: what `prism-jax predict --json` prints. Seconds, bytes, fractions 0-1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..calibration.band import model_factors
from ..cost.step_cost import StepCost
from ..explain.types import Explanation
from ..job import Job
from ..memory.breakdown import MemoryBreakdown
from ..metrics import hfu, mfu, tflops_per_gpu, tokens_per_s_per_gpu
from ..result import StepTimeDistribution

QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
BAND = ("p5", "p50", "p95")  # of the model
SLOWER = (0.01, 0.02, 0.05, 0.1)  # fractions above the median


def summary_dict(
    job: Job,
    distribution: StepTimeDistribution,
    explanation: Explanation,
    cost: StepCost,
    memory: MemoryBreakdown,
    *,
    seed: int,
    elapsed_s: Mapping[str, float],
    record: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that is known of a prediction, in plain types.

    Args:
        elapsed_s: {"compile": seconds, "run": seconds}.
        record: versions, git revision and inputs, from `io.write.run_record`.
    """
    guarantee = distribution.guarantee()
    return {
        "job": describe(job),
        "step_time_s": step_time(distribution),
        "model_band_s": model_band(job, distribution.quantile(0.5), seed),
        "mc_error_s": {name: distribution.mc_error(p) for name, p in QUANTILES.items()},
        "deterministic_s": distribution.deterministic_s,
        **utilisation(job, cost, distribution.quantile(0.5)),
        "memory_bytes_per_gpu": {**memory.as_dict(), "stage": memory.stage},
        "fits": memory.fits,
        "breakdown_s": dict(explanation.breakdown_s),
        "criticality": dict(explanation.criticality),
        "p95_owner_s": dict(explanation.p95_owner_s),
        "fleet_share": explanation.fleet_share,
        "guarantee": {
            "p": guarantee.p,
            "confidence": guarantee.confidence,
            "bound_s": guarantee.bound_s,
            "kind": guarantee.kind,
            "sentence": guarantee.sentence(),
        },
        "prob_slower": {f"{fraction:g}": distribution.prob_slower(fraction) for fraction in SLOWER},
        "method": distribution.method,
        "n_samples": distribution.n_samples,
        "tail_columns": distribution.tail_columns,
        "notes": list(distribution.notes),
        "seed": seed,
        "elapsed_s": dict(elapsed_s),
        "record": dict(record),
    }


def step_time(distribution: StepTimeDistribution) -> dict[str, float]:
    """Mean, standard deviation and quantiles, seconds."""
    quantiles = {name: distribution.quantile(p) for name, p in QUANTILES.items()}
    return {"mean": distribution.mean_s, "std": distribution.std_s, **quantiles}


def model_band(job: Job, median_s: float, seed: int) -> dict[str, float]:
    """5 %, 50 % and 95 % quantile of the median step that would be measured, seconds, given all the cost model does not know.

    Notes:
        Its `p50` is not the predicted median: corrections act on a step whose parts hide behind each other.
    """
    factors = model_factors(job.model, job.cluster, job.plan, job.calibrated, job.framework, seed)
    return {name: median_s * float(np.quantile(factors, QUANTILES[name])) for name in BAND}


def utilisation(job: Job, cost: StepCost, step_s: float) -> dict[str, float]:
    """MFU, HFU, TFLOP/s and tokens/s per GPU at a step of `step_s` seconds; the command line reports the median step."""
    plan = job.plan
    n, tokens = plan.n_devices, plan.global_batch * plan.seq_len
    return {
        "mfu": mfu(cost.model_flops, step_s, job.cluster, n, plan.dtype),
        "hfu": hfu(cost.hardware_flops, step_s, job.cluster, n, plan.dtype),
        "tflops_per_gpu": tflops_per_gpu(cost.model_flops, step_s, n),
        "tokens_per_s_per_gpu": tokens_per_s_per_gpu(tokens, step_s, n),
    }


def describe(job: Job) -> dict[str, Any]:
    """Names and sizes of a job."""
    plan = job.plan
    return {
        "name": job.name,
        "model": job.model.name,
        "cluster": job.cluster.name,
        "device": job.cluster.device.name,
        "variability": job.variability.name,
        "framework": job.software.name,
        "n_devices": plan.n_devices,
        "tp": plan.tp,
        "cp": plan.cp,
        "pp": plan.pp,
        "dp": plan.dp,
        "ep": plan.ep,
        "schedule": plan.schedule_name,
        "virtual_stages": plan.virtual_stages,
        "n_micro_batch": plan.n_micro_batch,
        "tokens_per_step": plan.global_batch * plan.seq_len,
        "dtype": plan.dtype,
    }
