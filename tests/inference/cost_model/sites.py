"""A made-up population of sites, and runs of one of them whose corrections are known; no row of any data."""

from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np

from inference.cost_model.site_runs import SiteRuns, site_runs
from inference.cost_model.step_times import CENTRE
from prism_jax.calibration.calibration import KNOBS, Calibration, Term
from prism_jax.calibration.surrogate import surrogate_seconds
from prism_jax.cost.efficiency import CostCorrection
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.validation.job_table import MeasuredRun
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model

GENERATION, FRAMEWORK = "ampere", "fsdp"
N_DRAW = 256


def population(misfit: float = 0.02, sd: float = 0.1, site_sd: float = 0.05) -> Calibration:
    """Knobs uncertain by `sd`, frameworks by half as much again; a configuration is off by `misfit`."""
    terms = []
    for knob in KNOBS:
        rng = np.random.default_rng([7, crc32(knob.encode())])  # its own, whatever other knobs there are
        noise = rng.normal(size=(N_DRAW, 2))
        noise = (noise - noise.mean(axis=0)) / noise.std(axis=0)
        terms.append(Term(knob, "all", sd, ("all",), sd * noise[:, :1]))
        terms.append(Term(knob, "framework", sd / 2, (FRAMEWORK,), sd / 2 * noise[:, 1:]))
    ones = np.ones(N_DRAW)
    return Calibration(CENTRE, tuple(terms), site_sd * ones, misfit * ones, 0.1 * ones, 2.0)


def job(dp: int = 16, micro_batch: int = 1, n_micro_batch: int = 1, tp: int = 1, name: str = "") -> Job:
    """Llama 2 7B on A100, fully sharded."""
    sharding = "fsdp" if tp == 1 else "none"
    plan = ParallelPlan(
        micro_batch=micro_batch,
        global_batch=dp * micro_batch * n_micro_batch,
        seq_len=4096,
        tp=tp,
        dp=dp,
        sharding=sharding,
        zero_stage=0 if tp == 1 else 1,
    )
    machine = cluster("dgx-a100", plan.n_devices)
    return Job(model("llama-2-7b"), machine, plan, preset("a100-default"), name or f"dp {dp}", FRAMEWORK)


JOBS = (
    job(16), job(32, 2), job(64), job(128), job(64, 1, 4), job(8, 2), job(8, 1, 8), job(32, 1, 2), job(16, 1, 1, 8),
    job(32, 1, 4, 8),
)  # fmt: skip


def measured(seconds: Sequence[float] | np.ndarray, jobs: Sequence[Job] = JOBS) -> list[MeasuredRun]:
    """Runs that took so long."""
    return [MeasuredRun(f"{i} {j.name}", j, float(s)) for i, (j, s) in enumerate(zip(jobs, seconds, strict=True))]


def runs_of(jobs: Sequence[Job] = JOBS) -> SiteRuns:
    """Their outlines; measured times are not set."""
    left_out = np.full(len(jobs), 0.01)
    return site_runs(measured(np.ones(len(jobs)), jobs), population(), left_out=left_out)


def simulated(runs: SiteRuns, correction: CostCorrection, noise: np.ndarray | float = 0.0) -> SiteRuns:
    """Runs measured where `correction` holds, with log noise [run]."""
    seconds = np.asarray(surrogate_seconds(runs, correction))
    return replace(runs, log_measured=np.log(seconds) + runs.left_out + noise)
