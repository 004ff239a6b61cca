"""A grid of jobs, each predicted, compared with the best; what `prism-jax sweep` does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._core.files import check_target
from ...errors import DataError
from ...io.write import run_record
from ...objective import OBJECTIVES
from ...progress import Progress, silent
from ...report.codec import from_plain
from ...report.types.record import RunRecord
from ...report.types.studies.sweep import SweepReport
from ...study.axes import Axis, grid, sizes_of
from ...study.table import StudyTable, study_table
from ..fitted.load_fits import FitFiles
from ..jobs import JobSource
from .tasks import JobTask, content_of, load_task, source_text

if TYPE_CHECKING:
    from ...plot.figure import Figure

SIZES = "cluster.n_devices"
FILL = "plan.dp=auto"  # what other sizes need of the plan


@dataclass(frozen=True)
class SweepRun:
    """A sweep with the table that its report is made of."""

    report: SweepReport
    table: StudyTable

    def figure(self) -> Figure:
        """The objective of every job."""
        from ...plot import plot_sweep  # here, so that sweeps without a picture do not pay for it

        return plot_sweep(self.table, self.report.job)


def sweep_jobs(job: JobSource, settings: Sequence[str], **options: Any) -> SweepReport:
    """A grid of jobs; arguments as those of `run_sweep`.

    Example:
        >>> sweep_jobs("llama2_7b_fsdp_64", ["plan.tp=1,2,4"]).rows[0].figures.p95_s  # doctest: +SKIP
    """
    return run_sweep(job, settings, **options).report


def run_sweep(
    job: JobSource,
    settings: Sequence[str],
    *,
    gpus: str | None = None,
    objective: str = "p95",
    price_per_gpu_hour: float | None = None,
    fits: FitFiles = (),
    force: bool = False,
    n_samples: int | None = None,
    seed: int = 0,
    resume: str | Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> SweepRun:
    """Predicts every job of a grid and compares them with the best.

    Args:
        job: a job file, or the name of a shipped example.
        settings: "section.field=v1,v2": fields that vary; one with a single value is set for all jobs.
        gpus: numbers of GPUs, "64,512" or "8:65536" for doublings: another axis, filled by data parallelism.
        objective: what is to be small (`prism-jax show objectives`). Seconds of steps with unlike batches or numbers of GPUs are
            compared as GPU-hours per million tokens.
        price_per_gpu_hour: for money.
        fits, force: as in `run_prediction`.
        n_samples: replica columns of every job.
        seed: of the draws, which all jobs share.
        resume: file that remembers what is done.
        n_workers: processes on this host; the table is the same with any number.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.
    """
    source = source_text(job)
    OBJECTIVES.named(objective)
    check_price(objective, price_per_gpu_hour)
    sizes = [] if gpus is None else [Axis(SIZES, tuple(map(str, sizes_of(gpus))))]
    axes, points = grid(settings, sizes)
    if not settings and gpus is None:
        raise DataError("nothing varies. Give --set FIELD=V1,V2,... or --gpus 8:1024.")
    identity = content_of(source, [str(file) for file in fits])
    if resume is not None:
        check_target(resume)
    from ...study.measure import DEFAULT_SAMPLES, Asked  # need JAX, which mistakes above do not wait for
    from ...study.run import run_study

    started = time.perf_counter()
    filled = () if gpus is None else (FILL,)
    names = tuple(str(file) for file in fits)
    tasks = [JobTask(source, (*filled, *point.overrides), names, force) for point in points]
    asked = Asked(objective, price_per_gpu_hour, None, n_samples or DEFAULT_SAMPLES, seed)
    path = None if resume is None else Path(resume)
    common: dict[str, Any] = {"resume": path, "n_workers": n_workers, "progress": progress}
    found = run_study(tasks, load_task, asked, identity=identity, **common)
    if not any(own.figures for own in found):
        raise DataError(f"no job of the grid is possible; the first: {found[0].problem}")
    unit = OBJECTIVES.named(objective).unit
    table = study_table(
        [axis.field for axis in axes],
        [dict(point.labels) for point in points],
        [own.figures for own in found],
        [own.problem for own in found],
        objective,
        unit,
    )
    inputs = {"job": source, "set": list(settings), "gpus": gpus, "objective": objective, "fit": list(names)}
    inputs |= {"samples": asked.n_samples, "price": price_per_gpu_hour}
    record = from_plain(RunRecord, run_record(inputs, seed))
    return SweepRun(_report(source, table, time.perf_counter() - started, record), table)


def check_price(objective: str, price: float | None) -> None:
    """Refuses a price that is none, and an objective in money without one.

    Raises:
        DataError: value and remedy.
    """
    if price is not None and not 0.0 < price < float("inf"):
        raise DataError(f"--price: {price:g}, but a price must be positive and finite")
    if price is None and "price_per_gpu_hour" in OBJECTIVES.named(objective).needs:
        raise DataError(f"objective {objective!r} needs --price, the price of a GPU-hour")


def _report(source: str, table: StudyTable, elapsed_s: float, record: RunRecord) -> SweepReport:
    lost = sum(row.figures is None for row in table.rows)
    notes = (f"{lost} of {len(table.rows)} jobs are impossible",) if lost else ()
    return SweepReport(source, table.axes, table.objective, table.unit, table.rows, notes, elapsed_s, record)
