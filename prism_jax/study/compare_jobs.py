"""A few jobs compared on shared draws; what `prism-jax compare` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated

from ..core.errors import DataError
from ..core.processes import Progress, silent
from ..core.report import RunRecord
from ..core.use_case import UNTIMED_S, Argument, noted, use_case
from ..fits.load_fits import load_fits
from ..job.job import Job
from ..job.load_job import JobSource, loaded, source_of
from ..result.objective import OBJECTIVES
from ..result.parameters import Applied, DevicePrices, ObjectiveName, Overrides, Samples, Seed
from ..result.prices import check_prices, checked, price_of
from .report import ComparedJob, ComparisonReport, markdown_table_or_none
from .table import unit_of_samples

if TYPE_CHECKING:
    from .table import Comparison

MOST_JOBS = len(ascii_uppercase)


@use_case(text=markdown_table_or_none, says="predicting")
def compare_jobs(
    jobs: Annotated[
        Sequence[JobSource], Argument(metavar="JOB...", recorded_as=lambda jobs: [source_of(job) for job in jobs])
    ],
    *,
    overrides: Overrides = (),
    objective: ObjectiveName = "p95",
    price_per_gpu_hour: DevicePrices = None,
    applied: Applied = Applied(),
    n_samples: Samples = None,
    seed: Seed = 0,
    progress: Progress = silent,
) -> ComparisonReport:
    """Compare jobs: times, rates and money, and the probability that one beats another.

    Args:
        jobs: YAML or TOML files, or names of shipped jobs (`prism-jax show examples`); two or more.
        overrides: "section.field=value" texts that replace a field of all files.
        objective: quantity to minimise (`prism-jax show objectives`). Seconds of steps with unlike batches or numbers of GPUs are
            compared as GPU-hours per million tokens.
        price_per_gpu_hour: price of every device, or by the name of the device.
        applied: fits, as in `explain_step`; they apply to all jobs.
        n_samples: replica columns of every job.
        seed: seed of the draws, which all jobs share.
        progress: told what is done.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.
        PlanError, SpecError: a job is impossible.

    Example:
        >>> compare_jobs(["llama3_405b_8192", "llama3_405b_16384"]).prob_less[0][1]  # doctest: +SKIP
    """
    if not 2 <= len(jobs) <= MOST_JOBS:
        raise DataError(f"{len(jobs)} jobs, but a comparison takes 2 to {MOST_JOBS}. `prism-jax sweep` takes more.")
    OBJECTIVES.named(objective)
    prices = checked(price_per_gpu_hour)
    found = [load_fits(loaded(job, overrides), applied.fits, seed=seed, force=applied.force) for job in jobs]
    own = [one.job for one in found]
    check_prices(prices, [job.cluster.device.name for job in own], objective)
    for job in own:
        job.check()
    from .run_grid import DEFAULT_SAMPLES, StudyRequest, figures_of
    from .table import compared  # needs JAX, which mistakes above do not wait for

    asked = StudyRequest(objective, None, None, n_samples or DEFAULT_SAMPLES, seed)
    figures = []
    for done, job in enumerate(own, 1):
        figures.append(figures_of(job, replace(asked, price_per_gpu_hour=price_of(prices, job.cluster.device.name))))
        progress(done / len(own), "jobs")
    names = [source_of(job) for job in jobs]
    made = compared(names, own, figures, objective, OBJECTIVES.named(objective).unit, seed)
    notes = tuple(note for one in found for note in (*one.tables, *one.unused, *one.notes))
    record = noted(samples=asked.n_samples)
    return _report(names, own, made, (*notes, *_unlike(own)), record).made_of(made)


def _unlike(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Notes on what a comparison of jobs of different models leaves out."""
    models = dict.fromkeys(job.model.name for job in jobs)
    if len(models) == 1:
        return ()
    return (
        f"the jobs train different models ({', '.join(models)}), whose {unit_of_samples(jobs)} are not worth the same",
    )


def _report(
    names: Sequence[str],
    jobs: Sequence[Job],
    made: Comparison,
    notes: tuple[str, ...],
    record: RunRecord,
) -> ComparisonReport:
    told = []
    for k, (job, row) in enumerate(zip(jobs, made.table.rows, strict=True)):
        assert row.figures is not None
        told.append(
            ComparedJob(
                ascii_uppercase[k],
                names[k],
                job.model.name,
                job.cluster.device.name,
                row.figures,
                row.relative,
                row.relative_error,
                *made.ratios[k],
                made.prob_best[k],
                row.is_best,
                row.is_tied,
            )
        )
    table = made.table
    unit = unit_of_samples(jobs)
    return ComparisonReport(table.objective, table.unit, tuple(told), made.prob_less, notes, UNTIMED_S, record, unit)
