"""A job on several numbers of GPUs; what `prism-jax scale` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..core.errors import ConfigError, DataError
from ..core.executor import Workers
from ..core.processes import Progress, keep_programs, silent
from ..core.use_case import UNTIMED_S, Option, OptionGroup, noted, use_case
from ..core.write_file import check_target
from ..job.job import Job
from ..job.load_job import JobFile, loaded
from ..result.objective import OBJECTIVES
from ..result.parameters import Applied, ObjectiveName, Overrides, Price, StudyRun
from .axes import Point, axis_of, grid, sizes_of
from .figures import JobFigures, target_of
from .scaling import (
    MODES,
    THRESHOLD,
    Mode,
    SizeRow,
    job_of_size,
    knee,
    of_step,
    onsets,
    size_rows,
    smallest_meeting,
    stop_size,
)
from .scaling_report import ScalingReport, TargetFacts
from .sweep_jobs import FILL, SIZES, JobTask, check_price_for, load_task, source_text

if TYPE_CHECKING:
    from .run_grid import MeasuredTask


@dataclass(frozen=True)
class SizeTask:
    """A job file on another number of GPUs."""

    job: JobTask
    n_devices: int
    mode: Mode


@dataclass(frozen=True)
class Growth(OptionGroup):
    """Settings of all sizes, the objective by which they are judged, and what changes with the number of GPUs.

    Attributes:
        overrides: fields that are set for all sizes.
        objective: quantity by which the best value is chosen.
        price_per_gpu_hour: price of a GPU-hour, for money per size.
        power_limit_watts: power limit of every GPU: clocks follow it.
        mode: scaling mode: weak (the batch grows with the GPUs) or strong (it stays).
        vary: values of a field from which each size takes the best, e.g. plan.tp=1,2,4; may be repeated.
        target: Bound to meet, "p95<=8s" or "tokens_per_s>=5e6"; the smallest size that meets it is reported.
        threshold: marginal return below which more GPUs do not pay.
    """

    overrides: Overrides = ()
    objective: ObjectiveName = "mean"
    price_per_gpu_hour: Price = None
    power_limit_watts: Annotated[float | None, Option("--power-limit", "WATTS", key="power_limit")] = None
    mode: Annotated[str, Option(metavar="NAME")] = "weak"
    vary: Annotated[Sequence[str], Option("--vary", "FIELD=V1,V2", recorded_as=list)] = ()
    target: Annotated[str | None, Option(metavar="BOUND")] = None
    threshold: Annotated[float, Option(metavar="SHARE", key=None)] = THRESHOLD


@use_case(says="predicting")
def scale_job(
    job: JobFile,
    gpus: Annotated[str, Option("--gpus", "N,N|N:N")],
    *,
    growth: Growth = Growth(),
    applied: Applied = Applied(),
    study: StudyRun = StudyRun(),
    workers: Workers = Workers(),
    progress: Progress = silent,
) -> ScalingReport:
    """Predict a job on several numbers of GPUs, and where more stops paying.

    Args:
        job: a job file, or the name of a shipped example.
        gpus: numbers of GPUs; 8:65536: all doublings.
        growth: settings of all sizes, objective, and changes with the number of GPUs.
        applied, study, workers: as in `sweep_jobs`.
        progress: told what is done.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong, or no size is possible.

    Example:
        >>> scale_job("llama2_7b_fsdp_64", "8:2048").stop_size  # doctest: +SKIP
    """
    source, sizes = source_text(job), sizes_of(gpus)
    _check(growth)
    wanted = None if growth.target is None else target_of(growth.target)
    points = _varied(growth.vary)
    if study.resume is not None:
        check_target(study.resume)
    power_w, fits = growth.power_limit_watts, tuple(map(str, applied.fits))
    shared = (*(() if power_w is None else (f"cluster.device.power={power_w:g} W",)), *growth.overrides)
    if growth.vary:
        shared = (*_own_size(source), *shared, FILL)
    jobs = [JobTask(source, (*shared, *point.overrides), fits, applied.force) for point in points]
    base = load_task(jobs[0])
    keep_programs()
    from .run_grid import DEFAULT_SAMPLES, StudyRequest, run_study  # need JAX, which mistakes above do not wait for

    mode: Mode = "weak" if growth.mode == "weak" else "strong"
    tasks = [SizeTask(one, n, mode) for n in sizes for one in jobs]
    n_samples = study.n_samples or DEFAULT_SAMPLES
    asked = StudyRequest(growth.objective, growth.price_per_gpu_hour, wanted, n_samples, study.seed)
    path = None if study.resume is None else Path(study.resume)
    found = run_study(tasks, load_size, asked, resume=path, workers=workers, progress=progress)
    of_sizes = [found[at : at + len(points)] for at in range(0, len(found), len(points))]
    rows = size_rows(sizes, [_best(points, own) for own in of_sizes])
    if not any(row.figures for row in rows):
        raise DataError(f"no size is possible; {rows[0].n_devices:,} GPUs: {rows[0].problem}")
    return ScalingReport(
        job=source,
        mode=mode,
        objective=growth.objective,
        threshold=growth.threshold,
        rows=rows,
        stop_size=stop_size(rows, growth.threshold),
        onsets=onsets(base, mode),
        onset_step=of_step(base, mode),
        knee=knee(sizes, [row.figures for row in rows]),
        target=None if growth.target is None else _target(growth.target, rows),
        notes=(),
        elapsed_s=UNTIMED_S,
        record=noted(job=source, samples=n_samples),
        sample_unit=base.model.sample_unit,
    ).made_of(rows)


def _check(growth: Growth) -> None:
    OBJECTIVES.named(growth.objective)
    check_price_for(growth.objective, growth.price_per_gpu_hour)
    if growth.mode not in MODES:
        raise DataError(f"--mode: {growth.mode!r} is unknown; known are {', '.join(MODES)}")
    if not 0.0 < growth.threshold < 1.0:
        raise DataError(f"--threshold: {growth.threshold:g}, but it must be between 0 and 1")
    power_w = growth.power_limit_watts
    if power_w is not None and not 0.0 < power_w < float("inf"):
        raise DataError(f"--power-limit: {power_w:g} W, but it must be finite and above 0")


def _varied(texts: Sequence[str]) -> list[Point]:
    """All combinations of what varies at each size.

    Raises:
        DataError: a text is no axis, or one of what the number of GPUs decides.
    """
    _, points = grid(texts, option="--vary")
    fields = [axis_of(text, "--vary").field for text in texts]
    decided = next((field for field in fields if field in (SIZES, FILL.partition("=")[0])), None)
    if decided is not None:
        raise DataError(
            f"--vary {decided}: the number of GPUs decides it. Give --gpus, and vary plan.tp, plan.pp or plan.cp."
        )
    return points


def _own_size(source: str) -> tuple[str, ...]:
    """The number of GPUs that a job has by its degrees, said of its cluster, so that other degrees fill it."""
    try:
        return (f"{SIZES}={loaded(source).plan.n_devices}",)
    except ConfigError:  # not whole without what is set, which has to say the number
        return ()


def load_size(task: SizeTask) -> Job:
    """The job of a task on its number of GPUs."""
    return job_of_size(load_task(task.job), task.n_devices, task.mode)


def _best(
    points: Sequence[Point], found: Sequence[MeasuredTask[SizeTask]]
) -> tuple[Mapping[str, str], JobFigures | None, str]:
    """Settings and figures of the best plan of a size: of those that fit into memory, or of all if none does."""
    known = [(point.labels, one.figures) for point, one in zip(points, found, strict=True) if one.figures]
    if not known:
        return {}, None, found[0].problem
    labels, figures = min(known, key=lambda pair: (not pair[1].fits, pair[1].value))
    return dict(labels), figures, ""


def _target(text: str, rows: Sequence[SizeRow]) -> TargetFacts:
    meeting = smallest_meeting(rows)
    most = max((row.figures.target_prob for row in rows if row.figures), default=0.0)
    prob = meeting.figures.target_prob if meeting and meeting.figures else most
    return TargetFacts(text, meeting.n_devices if meeting else None, prob)
