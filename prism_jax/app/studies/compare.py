"""A few jobs compared on shared draws; what `prism-jax compare` does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from ...io.write import run_record
from ...job import Job
from ...objective import OBJECTIVES
from ...progress import Progress, silent
from ...report.codec import from_plain
from ...report.types.record import RunRecord
from ...report.types.studies.comparison import ComparedJob, ComparisonReport
from ...study.fleets.prices import Prices, checked, price_of
from ..fitted.load_fits import FitFiles, load_fits
from ..jobs import JobSource, loaded, source_of

if TYPE_CHECKING:
    from ...plot.figure import Figure
    from ...study.comparison import Comparison

MOST_JOBS = len(ascii_uppercase)


@dataclass(frozen=True)
class ComparisonRun:
    """A comparison with what its report is made of."""

    report: ComparisonReport
    comparison: Comparison

    def figure(self) -> Figure:
        """Medians with their bands, ratios to the best, and the probabilities."""
        from ...plot import plot_comparison  # here, so that comparisons without a picture do not pay for it

        return plot_comparison(self.comparison, [f"{own.label}  {own.name}" for own in self.report.jobs])


def compare_jobs(jobs: Sequence[JobSource], **options: Any) -> ComparisonReport:
    """A few jobs compared; arguments as those of `run_comparison`.

    Example:
        >>> compare_jobs(["llama3_405b_8192", "llama3_405b_16384"]).prob_less[0][1]  # doctest: +SKIP
    """
    return run_comparison(jobs, **options).report


def run_comparison(
    jobs: Sequence[JobSource],
    *,
    overrides: Sequence[str] = (),
    objective: str = "p95",
    price_per_gpu_hour: Prices = None,
    fits: FitFiles = (),
    force: bool = False,
    n_samples: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> ComparisonRun:
    """Predicts jobs on the same draws and tells how probable it is that one beats another.

    Args:
        jobs: two or more: Job, job file, or name of a shipped example.
        overrides: "section.field=value" texts that replace a field of all files.
        objective: what is to be small (`prism-jax show objectives`). Seconds of steps with unlike batches or numbers of GPUs are
            compared as GPU-hours per million tokens.
        price_per_gpu_hour: of every device, or by the name of the device.
        fits, force: as in `run_prediction`; they apply to all jobs.
        n_samples: replica columns of every job.
        seed: of the draws, which all jobs share.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.
        PlanError, SpecError: a job is impossible.
    """
    if not 2 <= len(jobs) <= MOST_JOBS:
        raise DataError(f"{len(jobs)} jobs, but a comparison takes 2 to {MOST_JOBS}. `prism-jax sweep` takes more.")
    OBJECTIVES.named(objective)
    prices = checked(price_per_gpu_hour)
    found = [load_fits(loaded(job, overrides), fits, seed=seed, force=force) for job in jobs]
    own = [one.job for one in found]
    _check_prices(objective, prices, own)
    for job in own:
        job.check()
    from ...study.comparison import compared  # needs JAX, which mistakes above do not wait for
    from ...study.measure import DEFAULT_SAMPLES, Asked, figures_of

    started = time.perf_counter()
    asked = Asked(objective, None, None, n_samples or DEFAULT_SAMPLES, seed)
    figures = []
    for done, job in enumerate(own, 1):
        figures.append(figures_of(job, replace(asked, price_per_gpu_hour=price_of(prices, job.cluster.device.name))))
        progress(done / len(own), "jobs")
    names = [source_of(job) for job in jobs]
    made = compared(names, own, figures, objective, OBJECTIVES.named(objective).unit, seed)
    notes = tuple(note for one in found for note in (*one.tables, *one.unused, *one.notes))
    inputs = {"jobs": names, "set": list(overrides), "objective": objective, "price": price_per_gpu_hour}
    record = run_record(inputs | {"fit": list(fits), "samples": asked.n_samples}, seed)
    elapsed_s = time.perf_counter() - started
    return ComparisonRun(_report(names, own, made, (*notes, *_unlike(own)), elapsed_s, record), made)


def _check_prices(objective: str, prices: Prices, jobs: Sequence[Job]) -> None:
    """Refuses an objective in money where a device has no price."""
    if "price_per_gpu_hour" not in OBJECTIVES.named(objective).needs:
        return
    devices = dict.fromkeys(job.cluster.device.name for job in jobs)
    unknown = [name for name in devices if price_of(prices, name) is None]
    if unknown:
        remedy = f"--price {unknown[0]}=2.5" if prices else "--price 2.5"
        raise DataError(f"objective {objective!r} needs the price of a GPU-hour of {', '.join(unknown)}: {remedy}")


def _unlike(jobs: Sequence[Job]) -> tuple[str, ...]:
    """What a comparison of jobs of different models leaves out."""
    models = dict.fromkeys(job.model.name for job in jobs)
    if len(models) == 1:
        return ()
    return (f"the jobs train different models ({', '.join(models)}), whose tokens are not worth the same",)


def _report(
    names: Sequence[str],
    jobs: Sequence[Job],
    made: Comparison,
    notes: tuple[str, ...],
    elapsed_s: float,
    record: dict[str, Any],
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
    of_run = from_plain(RunRecord, record)
    return ComparisonReport(table.objective, table.unit, tuple(told), made.prob_less, notes, elapsed_s, of_run)
