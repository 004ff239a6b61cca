"""Compares saved predictions without a simulation: how often one job would be measured faster than another, and by how much.

Quantiles and their Monte Carlo errors are those of the reports; what the cost model does not know of both jobs is drawn together,
as `compare` draws it, from the jobs that the reports keep. Where these are not known, the intervals of the reports are taken as
unrelated, which holds what the jobs share twice: the probability is then nearer to one half than it should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, nan

import numpy as np

from ..core.arrays import Floats
from ..job.job import Job
from ..prediction.report import PredictionReport
from .figures import JobFigures
from .table import JOB, paired_factors, paired_values, prob_less, ratio_bands, study_table

QUANTILES = ("p50", "p95", "p99")
N_SEPARATE = 6144  # draws of intervals that have nothing in common
NORMAL_90 = 1.6449  # standard deviations to either side that hold 90%


@dataclass(frozen=True)
class ComparedQuantile:
    """A quantile of the step time of several jobs.

    Attributes:
        name: "p95"; of unlike batches or numbers of GPUs "p95 GPU-hours per million tokens".
        unit: "s" or "GPU-hours".
        values, errors: [report] in that unit, and their Monte Carlo standard errors.
        ratios: [report, 2] 90% interval of what would be measured over that of the first.
        prob_less: [report, other] probability that the value would be measured to be less than that of the other.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    errors: tuple[float, ...]
    ratios: tuple[tuple[float, float], ...]
    prob_less: tuple[tuple[float, ...], ...]


def compared_predictions(
    reports: Sequence[PredictionReport], jobs: Sequence[Job] | None, seed: int = 0
) -> tuple[ComparedQuantile, ...]:
    """Quantiles of predictions, compared.

    Args:
        jobs: of the reports, calibrated as for these; None: not known.
        seed: same seed, same draws.

    Raises:
        DataError: the jobs are calibrated in different ways.
        SpecError: no constants for a device.
    """
    factors = _separate_factors(reports, seed) if jobs is None else paired_factors(jobs, seed)
    return tuple(_quantile(name, reports, factors, seed) for name in QUANTILES)


def _quantile(name: str, reports: Sequence[PredictionReport], factors: Floats, seed: int) -> ComparedQuantile:
    figures = [figures_of_prediction(one, name) for one in reports]
    units = {one.job.sample_unit for one in reports}
    settings, none = [{JOB: ""}] * len(reports), [""] * len(reports)
    table = study_table([JOB], settings, figures, none, name, "s", units.pop() if len(units) == 1 else "samples")
    predicted = np.array([row.relative for row in table.rows])
    errors = predicted * [own.value_error / own.value for own in figures]
    measured = paired_values(predicted.tolist(), errors.tolist(), factors, seed)
    best = next(own for own, row in zip(figures, table.rows, strict=True) if row.is_best)
    scale = 1.0 if table.unit == "s" else best.n_devices / best.tokens_per_step * 1e6 / 3600.0
    return ComparedQuantile(
        table.objective,
        table.unit,
        tuple((scale * best.value * predicted).tolist()),
        tuple((scale * best.value * errors).tolist()),
        tuple((low, high) for low, high in ratio_bands(measured, 0).tolist()),
        tuple(map(tuple, prob_less(measured).tolist())),
    )


def _separate_factors(reports: Sequence[PredictionReport], seed: int) -> Floats:
    """[draw, report] factors between measured and predicted steps with the width of each interval, unrelated."""
    widths = [log(one.model_band_s.p95 / one.model_band_s.p5) / (2.0 * NORMAL_90) for one in reports]
    middles = [log(one.model_band_s.p50 / one.step_time_s.p50) for one in reports]
    scores = np.random.default_rng([seed, 12]).normal(size=(N_SEPARATE, len(reports)))
    return np.exp(np.array(middles) + np.array(widths) * scores)


def figures_of_prediction(report: PredictionReport, objective: str = "p95") -> JobFigures:
    """Figures of a job as a study has them; what a prediction does not say is NaN.

    Args:
        objective: quantile that is the value.
    """
    times, errors, band, parts = report.step_time_s, report.mc_error_s, report.model_band_s, report.breakdown_s
    rate, n_devices = report.tokens_per_s_per_gpu, report.job.n_devices

    def part(name: str) -> float:
        return float(parts.get(name, nan))

    return JobFigures(
        n_devices=float(n_devices),
        value=getattr(times, objective),
        value_error=getattr(errors, objective),
        mean_s=times.mean,
        p50_s=times.p50,
        p95_s=times.p95,
        p99_s=times.p99,
        p50_error_s=errors.p50,
        p95_error_s=errors.p95,
        p99_error_s=errors.p99,
        model_low=band.p5 / times.p50,
        model_high=band.p95 / times.p50,
        tokens_per_step=float(report.job.tokens_per_step),
        tokens_per_s=rate * n_devices,
        tokens_per_s_per_gpu=rate,
        mfu=report.mfu,
        hfu=report.hfu,
        memory_bytes=report.memory_bytes_per_gpu.total,
        fits=float(report.fits),
        compute_s=part("compute"),
        bubble_s=part("bubble"),
        waiting_s=part("waiting_for_stragglers"),
        stalls_s=part("stalls"),
        exposed_tp_s=part("tp_comm"),
        exposed_cp_s=part("cp_comm"),
        exposed_ep_s=part("ep_comm"),
        exposed_dp_s=part("dp_comm"),
        exposed_pp_s=part("pp_comm"),
        hidden_tp_s=nan,
        hidden_cp_s=nan,
        hidden_ep_s=nan,
        hidden_dp_s=nan,
        money_per_mtoken=nan if report.money is None else report.money.per_mtoken,
    )
