"""Predictions made up of known numbers, for tests of what a person sees; no JAX."""

from typing import Any

import numpy as np

from prism_jax.core.report import RunRecord
from prism_jax.cost.step import step_cost
from prism_jax.explain.types import Explanation
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.prediction.facts import prediction_report
from prism_jax.prediction.figures import Elapsed, StepTime
from prism_jax.prediction.report import PredictionReport
from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.result.spread import AllocationSpread
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model

EXPLANATION = Explanation(
    breakdown_s={
        "compute": 4.9,
        "tp_comm": 0.62,
        "cp_comm": 0.0,
        "dp_comm": 0.11,
        "pp_comm": 0.04,
        "bubble": 0.5,
        "stalls": 0.02,
        "waiting_for_stragglers": 0.31,
    },
    criticality={"gemm": 0.8, "attention": 0.1, "tp communication": 0.1},
    p95_owner_s={"gemm+attention+memory": 0.211, "step regime": 0.014, "all_gather": 0.003, "p2p": -0.0001},
    allocation=AllocationSpread(0.1, 0.83, 0.02, 6.62, 0.004),
)


def distribution(kind: str = "usual") -> StepTimeDistribution:
    """A step of about 6.5 s: usual, constant, narrow (0.01%), skewed, long_tailed, or noisy (large Monte Carlo error)."""
    rng = np.random.default_rng(0)
    normal = rng.standard_normal((8, 1024))
    times = {
        "usual": 6.5 * (1 + 0.005 * normal),
        "constant": np.full((8, 1024), 6.3),
        "narrow": 6.5 * (1 + 1e-4 * normal),
        "skewed": 6.32 + 0.2 * rng.gamma(0.7, size=normal.shape),
        "long_tailed": 6.5 * (1 + 0.005 * normal) * np.where(rng.random(normal.shape) < 0.03, 1.6, 1.0),
        "noisy": 6.5 * (1 + 0.005 * normal + 0.01 * rng.standard_normal((8, 1))),
    }[kind]
    return StepTimeDistribution(np.sort(times.ravel()), np.sort(times, axis=1), 6.3, "symmetric", 2048, 300.0)


def job(**changes: Any) -> Job:
    """Llama-3 8B on 64 H100; `changes` replace fields of the plan."""
    fields = {"micro_batch": 1, "global_batch": 128, "seq_len": 8192, "tp": 4, "dp": 16, "sequence_parallel": True}
    plan = ParallelPlan(**{**fields, "zero_stage": 1, **changes})
    return Job(model("llama-3-8b"), cluster("dgx-h100", plan.n_devices), plan, preset("h100-default"), "a job")


def report(kind: str = "usual", **changes: Any) -> PredictionReport:
    """Report of a prediction of `job(**changes)`."""
    return report_of(job(**changes), kind)


def report_of(of: Job, kind: str = "usual", times: StepTime | None = None) -> PredictionReport:
    """The same of any job, with other `times` than the distribution's."""
    return prediction_report(
        of,
        distribution(kind),
        EXPLANATION,
        step_cost(of.model, of.cluster, of.plan, of.efficiency),
        times=times,
        seed=7,
        elapsed=Elapsed(3.2, 0.08, 0.5),
        record=RunRecord({}, None, {}, 7),
    )
