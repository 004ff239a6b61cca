"""The report of a prediction from what was computed; seconds, bytes, fractions 0-1. No JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from ..calibration.band import model_factors
from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.report import RunRecord
from ..cost.step import StepCost
from ..host.busy_time import busy_time
from ..job.job import Job
from ..result.distribution import Guarantee, StepTimeDistribution
from ..result.spread import AllocationSpread
from ..result.tails import PRESETS, tail_draws
from ..system.hardware import hfu, mfu, tflops_per_gpu, tokens_per_s_per_gpu
from ..workload.transformer.op_lists import dropped_by_experts
from ..workload.transformer.routing import DroppedTokens
from ..workload.transformer.spec import TransformerSpec
from .figures import (
    AllocationFacts,
    Bounds,
    Elapsed,
    JobFacts,
    ModelBand,
    PublishedFigure,
    StepTime,
    StepTimeError,
    TailFacts,
    TailQuantiles,
    WholeMatrix,
)
from .job_facts import (
    evidence_of_job,
    expert_notes,
    host_facts,
    host_notes,
    job_names,
    memory_facts,
    open_facts,
    recipe_notes,
)
from .report import PredictionReport

if TYPE_CHECKING:
    from ..explain.types import Explanation

N_LEVEL = 400  # draws of the level of a job that its own log sets
QUANTILES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
BAND = ("p5", "p50", "p95")  # of the model
SLOWER = (0.01, 0.02, 0.05, 0.1)  # fractions above the median


def prediction_report(
    job: Job,
    distribution: StepTimeDistribution,
    explanation: Explanation | None,
    cost: StepCost,
    *,
    times: StepTime | None = None,
    seed: int,
    elapsed: Elapsed,
    record: RunRecord,
) -> PredictionReport:
    """Report of everything that is known of a prediction.

    Args:
        explanation: None where none was asked for.
        times: of the step, seconds, at whose median the rates are; None: as the distribution has them.
        record: completed by the use case.
    """
    plan, n, memory, times = job.plan, job.plan.n_devices, job.memory, times or step_time(distribution)
    median_s = times.p50
    guarantee, unbounded = _guarantee(distribution)
    busy = busy_time(job.model, job.cluster, plan.computed, job.efficiency)
    rates = {
        "step_s": median_s,
        "mfu": mfu(cost.model_flops, median_s, job.cluster, n, plan.dtype),
        "tflops_per_gpu": tflops_per_gpu(cost.model_flops, median_s, n),
        "tokens_per_s_per_gpu": tokens_per_s_per_gpu(job.model.units_per_step(plan), median_s, n),
    }
    whole = _whole_matrix(job, cost.model_flops, median_s)
    return PredictionReport(
        job=job_facts(job),
        step_time_s=times,
        model_band_s=model_band(job, median_s, seed),
        mc_error_s=StepTimeError(**{name: distribution.mc_error(p) for name, p in QUANTILES.items()}),
        deterministic_s=distribution.deterministic_s,
        gpu_active_s=busy.gpu_active_s,
        host_s=busy.host_s,
        naive_sum_s=busy.naive_sum_s,
        host_bound=busy.host_bound,
        mfu=rates["mfu"],
        hfu=hfu(cost.hardware_flops, median_s, job.cluster, n, plan.dtype),
        tflops_per_gpu=rates["tflops_per_gpu"],
        tokens_per_s_per_gpu=rates["tokens_per_s_per_gpu"],
        memory_bytes_per_gpu=memory_facts(job, memory, stage=memory.stage),
        fits=job.fits,
        host_memory_bytes_per_node=host_facts(job),
        whole_matrix=whole,
        dropped_share=_dropped(job),
        published=_published(job, rates, whole),
        breakdown_s=dict(explanation.breakdown_s) if explanation else {},
        criticality=dict(explanation.criticality) if explanation else {},
        p95_owner_s=dict(explanation.p95_owner_s) if explanation else {},
        criticality_mc_error=dict(explanation.criticality_error) if explanation else {},
        p95_owner_mc_error_s=dict(explanation.p95_owner_error_s) if explanation else {},
        given=explanation.given if explanation else None,
        fleet_share=explanation.allocation.share if explanation else None,
        allocation=_allocation(explanation.allocation) if explanation else None,
        guarantee=guarantee,
        prob_slower={f"{fraction:g}": distribution.prob_slower(fraction) for fraction in SLOWER},
        method=distribution.method,
        n_samples=distribution.n_samples,
        tail_columns=distribution.tail_columns,
        notes=(*distribution.notes, *unbounded, *host_notes(job), *expert_notes(job), *recipe_notes(job)),
        open_fields=open_facts(job),
        evidence=evidence_of_job(job),
        seed=seed,
        elapsed_s=elapsed,
        record=record,
    )


WORTH_SAYING = 0.01  # of the FLOPs: counts that are closer are one


def _whole_matrix(job: Job, model_flops: float, median_s: float) -> WholeMatrix | None:
    if not isinstance(job.model, TransformerSpec):
        return None
    n, flops = job.plan.n_devices, job.model.whole_matrix_flops(job.plan)
    if flops < (1.0 + WORTH_SAYING) * model_flops:
        return None
    return WholeMatrix(mfu(flops, median_s, job.cluster, n, job.plan.dtype), tflops_per_gpu(flops, median_s, n))


def _dropped(job: Job) -> DroppedTokens | None:
    return dropped_by_experts(job.model, job.plan.computed) if isinstance(job.model, TransformerSpec) else None


def _published(job: Job, rates: Mapping[str, float], whole: WholeMatrix | None) -> tuple[PublishedFigure, ...] | None:
    if job.published is None:
        return None
    other = {} if whole is None else vars(whole)
    figures = job.published.figures.items()
    return tuple(PublishedFigure(name, value, rates[name], other.get(name)) for name, value in figures)


def _guarantee(distribution: StepTimeDistribution) -> tuple[Guarantee | None, tuple[str, ...]]:
    """The guarantee, or none and a note that says why."""
    try:
        return distribution.guarantee(), ()
    except DataError as error:
        return None, (f"no bound: {error}",)


def _allocation(spread: AllocationSpread) -> AllocationFacts:
    return AllocationFacts(spread.between_s, spread.within_s, spread.p95_s, spread.p95_error_s, spread.share_error)


def step_time(distribution: StepTimeDistribution) -> StepTime:
    """Mean, standard deviation and quantiles, seconds."""
    quantiles = {name: distribution.quantile(p) for name, p in QUANTILES.items()}
    return StepTime(mean=distribution.mean_s, std=distribution.std_s, **quantiles)


def model_band(job: Job, median_s: float, seed: int) -> ModelBand:
    """5%, 50% and 95% quantile of the median step that would be measured, seconds, given all the cost model does not know.

    Notes:
        Its `p50` is not the predicted median: corrections act on a step whose parts hide behind each other.
        Where the level is that of the job's own log, only what the log leaves open.
    """
    if job.level is not None:
        return ModelBand(**{name: median_s * job.level.quantile(float(ndtri(QUANTILES[name]))) for name in BAND})
    factors = level_draws(job, seed)
    return ModelBand(**{name: median_s * float(np.quantile(factors, QUANTILES[name])) for name in BAND})


def level_draws(job: Job, seed: int) -> Floats:
    """[draw] equally likely factors on the step time: what the cost model, or the log that sets the level, leaves open."""
    if job.level is not None:
        own = job.level
        return np.array([own.quantile(float(ndtri((i + 0.5) / N_LEVEL))) for i in range(N_LEVEL)])
    return model_factors(
        job.model, job.cluster, job.plan, job.effective_calibration, job.framework, seed, job.open_fields
    )


def with_tails(report: PredictionReport, job: Job, distribution: StepTimeDistribution, seed: int) -> PredictionReport:
    """The report with how far tails of systems differ, where the variability of the job is a preset's."""
    if job.variability.name not in PRESETS or job.variability.is_zero:
        return report
    tails, names = tail_draws(job.plan.n_devices), ("p95", "p99")
    drawn_s = {name: tails.quantiles(distribution, QUANTILES[name]) for name in names}
    n = len(tails.log_ratio)  # evenly spaced quantiles, so that chance does not move the ends
    level = np.random.default_rng(seed).permutation(np.quantile(level_draws(job, seed), (np.arange(n) + 0.5) / n))
    median_s, guarantee = distribution.quantile(0.5), report.guarantee
    if guarantee is not None:
        guarantee = tails.guarantee(distribution, guarantee.p, guarantee.confidence)
    return replace(
        report,
        tail=TailFacts(
            TailQuantiles(**{name: _bounds(drawn_s[name] / median_s - 1.0) for name in names}),
            TailQuantiles(**{name: _bounds(drawn_s[name] * level) for name in names}),
        ),
        guarantee=guarantee,
        prob_slower={f"{fraction:g}": tails.prob_slower(distribution, fraction) for fraction in SLOWER},
    )


def _bounds(drawn: Floats) -> Bounds:
    low, high = np.quantile(drawn, (QUANTILES["p5"], QUANTILES["p95"]))
    return Bounds(float(low), float(high))


def job_facts(job: Job) -> JobFacts:
    """Names and sizes of a job."""
    return JobFacts(**job_names(job), virtual_stages=job.plan.virtual_stages, dtype=job.plan.dtype)
