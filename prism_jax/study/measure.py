"""figures_of: predicts a job and reads off what a study measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import numpy as np

from .._typing import Floats
from ..calibration.band import model_factors
from ..cost.step_cost import StepCost
from ..explain.breakdown import breakdown
from ..explain.power_phases import power_phases
from ..job import Job
from ..kernels import COMM_AXES
from ..metrics import hfu, mfu
from ..objective import plan_objective
from ..power import step_power
from ..result import StepTimeDistribution
from ..simulate.predict import predict
from ..simulate.program import lower
from .figures import Figures
from .target import Target

S_PER_HOUR, MILLION = 3600.0, 1e6
BAND = (0.05, 0.95)  # of the model
DEFAULT_SAMPLES = 2048


@dataclass(frozen=True)
class Asked:
    """What is measured of every job of a study, and how.

    Attributes:
        objective: name of what is to be small.
        price_per_gpu_hour: None where money is not asked for.
        target: None where there is none.
        n_samples: replica columns; every job sees the same draws.
    """

    objective: str = "p95"
    price_per_gpu_hour: float | None = None
    target: Target | None = None
    n_samples: int = DEFAULT_SAMPLES
    seed: int = 0


def figures_of(job: Job, asked: Asked) -> Figures:
    """Figures of one job.

    Raises:
        PlanError, SpecError, DataError: the job is impossible, or cannot answer what is asked.
    """
    job.check()
    distribution = predict(job, key=jax.random.key(asked.seed), n_samples=asked.n_samples)
    program, plan = lower(job), job.plan
    factors = model_factors(
        job.model, job.cluster, plan, job.effective_calibration, job.framework, asked.seed, job.open_fields
    )
    times = {"mean": distribution.mean_s} | {f"p{p}": distribution.quantile(p / 100) for p in (50, 95, 99)}
    n_tokens, n = float(job.model.units_per_step(plan)), plan.n_devices
    rates = {
        "tokens_per_s": n_tokens / times["p50"],
        "tokens_per_s_per_gpu": n_tokens / times["p50"] / n,
        "mfu": mfu(program.cost.model_flops, times["p50"], job.cluster, n, plan.dtype),
    }
    value, error = _objective(job, distribution, asked)
    price = np.nan if asked.price_per_gpu_hour is None else asked.price_per_gpu_hour
    low, high = np.quantile(factors, BAND)
    memory, target, where_s = job.memory, asked.target, breakdown(program, distribution)
    return Figures(
        n_devices=float(n),
        value=value,
        value_error=error,
        **{f"{name}_s": seconds for name, seconds in times.items()},
        **{f"p{p}_error_s": distribution.mc_error(p / 100) for p in (50, 95, 99)},
        model_low=float(low),
        model_high=float(high),
        tokens_per_step=n_tokens,
        **rates,
        hfu=hfu(program.cost.hardware_flops, times["p50"], job.cluster, n, plan.dtype),
        memory_bytes=float(memory.total_bytes),
        fits=float(memory.fits),
        **_where(where_s),
        **_power(job, where_s, n_tokens),
        **_hidden(program.cost, plan.n_micro_batch, plan.pp),
        money_per_mtoken=times["mean"] * n / S_PER_HOUR / n_tokens * MILLION * price,
        target_prob=np.nan if target is None else target.prob((times | rates)[target.name], factors),
    )


def _objective(job: Job, distribution: StepTimeDistribution, asked: Asked) -> tuple[float, float]:
    """The objective, and its Monte Carlo standard error from independent randomisations."""
    objective = plan_objective(asked.objective, job.plan, asked.price_per_gpu_hour)
    value = float(objective.of(distribution.samples_s))
    if asked.objective.startswith("p") and objective.unit == "s":
        return value, distribution.mc_error(float(f"0.{asked.objective[1:]}"))
    batches = np.asarray([float(objective.of(own)) for own in distribution.batches_s])
    return value, float(batches.std(ddof=1) / np.sqrt(len(batches)))


def _where(seconds: Mapping[str, float]) -> dict[str, float]:
    """Where the mean step goes, under the names of `Figures`."""
    comm = {f"exposed_{axis}_s": seconds[f"{axis}_comm"] for axis in (*COMM_AXES, "pp")}
    rest = {"waiting_s": seconds["waiting_for_stragglers"]}
    return comm | rest | {f"{name}_s": seconds[name] for name in ("compute", "bubble", "stalls")}


def _power(job: Job, where_s: Mapping[str, float], n_tokens: float) -> dict[str, float]:
    """Mean watts of a GPU, and joules of all GPUs per token; nothing of devices whose power no law is known of."""
    found = step_power(power_phases(job, where_s), job.cluster.device)
    if found is None:
        return {}
    return {
        "gpu_watts": float(found.watts),
        "joules_per_token": float(found.joules) * job.plan.n_devices / n_tokens,
    }


def _hidden(cost: StepCost, n_micro_batch: int, n_stage: int) -> dict[str, float]:
    """Communication that runs beside compute, by axis."""
    by_axis: Floats = np.asarray(cost.hidden_comm_s).sum(axis=(0, 1)) * n_micro_batch / n_stage
    found = {f"hidden_{axis}_s": float(seconds) for axis, seconds in zip(COMM_AXES, by_axis, strict=True)}
    return found | {"hidden_dp_s": found["hidden_dp_s"] + float(np.mean(cost.end_hidden_comm_s))}
