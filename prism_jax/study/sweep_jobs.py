"""Predicts a grid of jobs and compares them with the best; what `prism-jax sweep` does.

Tasks about job files are picklable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..core.errors import DataError
from ..core.executor import Workers
from ..core.processes import Progress, keep_programs, silent
from ..core.report import RunRecord
from ..core.use_case import OUTPUT, UNTIMED_S, Message, Option, noted, use_case
from ..core.write_file import check_file, check_target, write_text
from ..fits.load_fits import load_fits
from ..job.job import Job
from ..job.load_job import JobFile, JobSource, loaded
from ..result.objective import OBJECTIVES
from ..result.parameters import Applied, ObjectiveName, Price, StudyRun
from ..result.prices import check_price
from .axes import Axis, grid, sizes_of
from .report import SweepReport, markdown_table_or_none
from .table import StudyTable, study_table

if TYPE_CHECKING:
    from .journal import StudyShard


@dataclass(frozen=True)
class JobTask:
    """A job file with overrides and fits.

    Attributes:
        source: file, or name of a shipped job.
        overrides: "section.field=value".
        fits: files of `prism-jax fit` or `calibrate`.
        force: use a fit even where its verdict is failed.
    """

    source: str
    overrides: tuple[str, ...] = ()
    fits: tuple[str, ...] = ()
    force: bool = False


def load_task(task: JobTask) -> Job:
    """The job of a task, with its fits.

    Raises:
        ConfigError, DataError, FitError: a file or an override is wrong.
    """
    job = loaded(task.source, task.overrides)
    return load_fits(job, task.fits, force=task.force).job if task.fits else job


def source_text(job: JobSource) -> str:
    """The job as a task names it.

    Raises:
        DataError: a Job, which has no fields that texts could replace, or a mapping.
    """
    if not isinstance(job, (str, Path)):
        kind = "Job" if isinstance(job, Job) else "mapping"
        raise DataError(
            f"a study replaces fields of a job file. Give a file or the name of a shipped job, not a {kind}."
        )
    return str(job)


SIZES = "cluster.n_devices"
FILL = "plan.dp=auto"  # what other sizes need of the plan


def write_csv(
    report: SweepReport,
    csv: Annotated[
        str | Path | None,
        Option(metavar="FILE", heading=OUTPUT, check=check_file, help="Write the table with all figures."),
    ] = None,
) -> Message | None:
    """Writes the table with all figures.

    Raises:
        DataError: the file cannot be written.
    """
    if csv is None:
        return None
    write_text(csv, report.parts.to_csv())
    return Message(f"wrote {csv}")


@use_case(text=markdown_table_or_none, then=(write_csv,), says="predicting")
def sweep_jobs(
    job: JobFile,
    settings: Annotated[Sequence[str], Option("--set", "FIELD=V1,V2", key="set", recorded_as=list)] = (),
    *,
    gpus: Annotated[str | None, Option("--gpus", "N,N|N:N")] = None,
    objective: ObjectiveName = "p95",
    price_per_gpu_hour: Price = None,
    applied: Applied = Applied(),
    study: StudyRun = StudyRun(),
    shard: Annotated[str | None, Option(metavar="I/N", key=None)] = None,
    workers: Workers = Workers(),
    progress: Progress = silent,
) -> SweepReport:
    """Predict a grid of jobs and compare them.

    Args:
        job: a job file, or the name of a shipped example.
        settings: values of one field of the job, e.g. plan.tp=1,2,4; may be repeated; one value is set for all jobs.
        gpus: numbers of GPUs as another axis, filled by data parallelism: 64,512, or 8:1024 for all doublings.
        objective: quantity to minimise (`prism-jax show objectives`). Seconds of steps with unlike batches or numbers of GPUs are
            compared as GPU-hours per million tokens.
        price_per_gpu_hour: price of a GPU-hour, for money per job.
        applied: fits, as in `explain_step`.
        study: draws, and a file that remembers what is done, or a folder for shards.
        shard: measure every N-th job alone, from the I-th (0 to N - 1), and keep them in the folder that --resume names; auto/N
            takes I from Slurm, Kubernetes or MPI. The command without it then prints the whole table.
        workers: processes that share the jobs.
        progress: told what is done.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.

    Example:
        >>> sweep_jobs("llama2_7b_fsdp_64", ["plan.tp=1,2,4"]).rows[0].figures.p95_s  # doctest: +SKIP
    """
    fits, resume, seed = applied.fits, study.resume, study.seed
    source = source_text(job)
    OBJECTIVES.named(objective)
    check_price_for(objective, price_per_gpu_hour)
    sizes = [] if gpus is None else [Axis(SIZES, tuple(map(str, sizes_of(gpus))))]
    axes, points = grid(settings, sizes)
    if not settings and gpus is None:
        raise DataError("nothing varies. Give --set FIELD=V1,V2,... or --gpus 8:1024.")
    part, path = shard_in(shard, resume)
    keep_programs()
    from .run_grid import DEFAULT_SAMPLES, StudyRequest, run_study  # need JAX, which mistakes above do not wait for

    filled = () if gpus is None else (FILL,)
    names = tuple(str(file) for file in fits)
    tasks = [JobTask(source, (*filled, *point.overrides), names, applied.force) for point in points]
    asked = StudyRequest(objective, price_per_gpu_hour, None, study.n_samples or DEFAULT_SAMPLES, seed)
    common: dict[str, Any] = {"resume": path, "shard": part, "workers": workers, "progress": progress}
    found = run_study(tasks, load_task, asked, **common)
    points = [points[number] for number in part.positions(len(points))]
    if not found:
        raise DataError(f"--shard {shard}: it has none of the {len(tasks)} jobs. Give at most {len(tasks)} shards.")
    if not any(own.figures for own in found):
        raise DataError(f"no job of the grid is possible; the first: {found[0].problem}")
    unit, possible = OBJECTIVES.named(objective).unit, [own.task for own in found if own.figures]
    sample_unit = load_task(possible[0]).model.sample_unit
    table = study_table(
        [axis.field for axis in axes],
        [dict(point.labels) for point in points],
        [own.figures for own in found],
        [own.problem for own in found],
        objective,
        unit,
        sample_unit,
    )
    record = noted(job=source, samples=asked.n_samples)
    return _report(source, table, record, sample_unit, part).made_of(table)


def check_price_for(objective: str, price: float | None) -> None:
    """Refuses a price that is none, and an objective in money without one.

    Raises:
        DataError: value and remedy.
    """
    check_price(price)
    if price is None and "price_per_gpu_hour" in OBJECTIVES.named(objective).needs:
        raise DataError(f"objective {objective!r} needs --price, the price of a GPU-hour")


def shard_in(text: str | None, resume: str | Path | None) -> tuple[StudyShard, Path | None]:
    """Reads a shard and where its figures are kept.

    Raises:
        DataError: a shard without a folder; or a file that cannot be written.
    """
    from .journal import WHOLE, shard_of

    part = WHOLE if text is None else shard_of(text)
    if text is not None and (resume is None or Path(resume).is_file()):
        raise DataError("--shard: its jobs are kept in a folder that all shards share. Give --resume FOLDER.")
    if resume is not None and part.of == 1 and not Path(resume).is_dir():
        check_target(resume)
    return part, None if resume is None else Path(resume)


def _report(source: str, table: StudyTable, record: RunRecord, sample_unit: str, part: StudyShard) -> SweepReport:
    lost, n_row = sum(row.figures is None for row in table.rows), len(table.rows)
    notes = (f"{lost} of {n_row} jobs {'is' if lost == 1 else 'are'} impossible",) if lost else ()
    shard = f"{part.number} of {part.of}" if part.of > 1 else ""
    return SweepReport(
        source, table.axes, table.objective, table.unit, table.rows, notes, UNTIMED_S, record, sample_unit, shard
    )
