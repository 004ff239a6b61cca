"""A job on several numbers of GPUs; what `prism-jax scale` does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._core.files import check_target
from ...errors import DataError
from ...io.write import run_record
from ...job import Job
from ...objective import OBJECTIVES
from ...progress import Progress, silent
from ...report.codec import from_plain
from ...report.types.record import RunRecord
from ...report.types.studies.scaling import ScalingReport, TargetFacts
from ...study.axes import Point, grid, sizes_of
from ...study.figures import Figures
from ...study.scaling import THRESHOLD, SizeRow, size_rows, smallest_meeting, stop_size
from ...study.sizes import MODES, Mode, job_of_size
from ...study.target import target_of
from ..fitted.load_fits import FitFiles
from ..jobs import JobSource
from .sweep import FILL, check_price
from .tasks import JobTask, content_of, load_task, source_text

if TYPE_CHECKING:
    from ...plot.figure import Figure
    from ...study.run import Measured


@dataclass(frozen=True)
class SizeTask:
    """A job file on another number of GPUs."""

    job: JobTask
    n_devices: int
    mode: Mode


@dataclass(frozen=True)
class ScalingRun:
    """A scaling study with the rows that its report is made of."""

    report: ScalingReport
    rows: tuple[SizeRow, ...]

    def figure(self) -> Figure:
        """Throughput, where the step goes, energy and money over the number of GPUs."""
        from ...plot import plot_scaling  # here, so that studies without a picture do not pay for it

        return plot_scaling(self.rows, f"{self.report.job}: {self.report.mode} scaling", self.report.onset_step)


def scale_job(job: JobSource, gpus: str, **options: Any) -> ScalingReport:
    """A job on several numbers of GPUs; arguments as those of `run_scaling`.

    Example:
        >>> scale_job("llama2_7b_fsdp_64", "8:2048").stop_size  # doctest: +SKIP
    """
    return run_scaling(job, gpus, **options).report


def run_scaling(
    job: JobSource,
    gpus: str,
    *,
    mode: str = "weak",
    overrides: Sequence[str] = (),
    vary: Sequence[str] = (),
    objective: str = "mean",
    price_per_gpu_hour: float | None = None,
    power_limit_watts: float | None = None,
    target: str | None = None,
    threshold: float = THRESHOLD,
    fits: FitFiles = (),
    force: bool = False,
    n_samples: int | None = None,
    seed: int = 0,
    resume: str | Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> ScalingRun:
    """Predicts a job on every number of GPUs, under its own plan or the best of some.

    Args:
        job: a job file, or the name of a shipped example.
        gpus: "64,512", or "8:65536" for doublings.
        mode: "weak": the batch grows with the GPUs; "strong": it stays.
        overrides: fields that are set for all sizes.
        vary: "plan.tp=1,2,4": fields of which every size takes the best combination.
        objective: by which that is the best.
        price_per_gpu_hour: for money.
        power_limit_watts: of every GPU.
        target: "p95<=8s" or "tokens_per_s>=5e6": the smallest size that meets it is named.
        threshold: of the marginal return, below which more GPUs do not pay.
        fits, force, n_samples, seed, resume, n_workers: as in `run_sweep`.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong, or no size is possible.
    """
    source, sizes = source_text(job), sizes_of(gpus)
    OBJECTIVES.named(objective)
    check_price(objective, price_per_gpu_hour)
    if mode not in MODES:
        raise DataError(f"--mode: {mode!r} is unknown; known are {', '.join(MODES)}")
    if not 0.0 < threshold < 1.0:
        raise DataError(f"--threshold: {threshold:g}, but it must be between 0 and 1")
    if power_limit_watts is not None and not 0.0 < power_limit_watts < float("inf"):
        raise DataError(f"--power-limit: {power_limit_watts:g} W, but it must be finite and above 0")
    wanted = None if target is None else target_of(target)
    _, points = grid(vary)
    names = tuple(str(file) for file in fits)
    identity = content_of(source, names)
    if resume is not None:
        check_target(resume)
    limit = () if power_limit_watts is None else (f"cluster.device.power={power_limit_watts:g} W",)
    shared = (*limit, *overrides, *((FILL,) if vary else ()))
    base = load_task(JobTask(source, (*shared, *points[0].overrides), names, force))
    from ...study.measure import DEFAULT_SAMPLES, Asked  # need JAX, which mistakes above do not wait for
    from ...study.run import run_study

    started = time.perf_counter()
    pairs = [(n, point) for n in sizes for point in points]
    chosen: Mode = "weak" if mode == "weak" else "strong"
    tasks = [SizeTask(JobTask(source, (*shared, *point.overrides), names, force), n, chosen) for n, point in pairs]
    asked = Asked(objective, price_per_gpu_hour, wanted, n_samples or DEFAULT_SAMPLES, seed)
    path = None if resume is None else Path(resume)
    found = run_study(tasks, load_size, asked, identity=identity, resume=path, n_workers=n_workers, progress=progress)
    rows = size_rows(sizes, [_best(n, pairs, found) for n in sizes])
    if not any(row.figures for row in rows):
        raise DataError(f"no size is possible; {rows[0].n_devices:,} GPUs: {rows[0].problem}")
    inputs = {"job": source, "gpus": gpus, "mode": mode, "set": list(overrides), "vary": list(vary), "fit": list(names)}
    inputs |= {"objective": objective, "price": price_per_gpu_hour, "power_limit": power_limit_watts, "target": target}
    record = from_plain(RunRecord, run_record(inputs | {"samples": asked.n_samples}, seed))
    report = _report(base, source, chosen, objective, threshold, rows, target, time.perf_counter() - started, record)
    return ScalingRun(report, rows)


def load_size(task: SizeTask) -> Job:
    """The job of a task on its number of GPUs."""
    return job_of_size(load_task(task.job), task.n_devices, task.mode)


def _best(
    n: int, pairs: Sequence[tuple[int, Point]], found: Sequence[Measured[SizeTask]]
) -> tuple[Mapping[str, str], Figures | None, str]:
    """Settings and figures of the best plan of a size: of those that fit into memory, or of all if none does."""
    own = [(point.labels, one) for (size, point), one in zip(pairs, found, strict=True) if size == n]
    known = [(labels, one.figures) for labels, one in own if one.figures]
    if not known:
        return {}, None, own[0][1].problem
    labels, figures = min(known, key=lambda pair: (not pair[1].fits, pair[1].value))
    return dict(labels), figures, ""


def _report(
    base: Job,
    source: str,
    mode: Mode,
    objective: str,
    threshold: float,
    rows: tuple[SizeRow, ...],
    target: str | None,
    elapsed_s: float,
    record: RunRecord,
) -> ScalingReport:
    from ...study.onset import knee, of_step, onsets

    sizes = [row.n_devices for row in rows]
    meeting = smallest_meeting(rows)
    met = None
    if target is not None:
        prob = max((row.figures.target_prob for row in rows if row.figures), default=0.0)
        own = meeting.figures.target_prob if meeting and meeting.figures else prob
        met = TargetFacts(target, meeting.n_devices if meeting else None, own)
    return ScalingReport(
        job=source,
        mode=mode,
        objective=objective,
        threshold=threshold,
        rows=rows,
        stop_size=stop_size(rows, threshold),
        onsets=onsets(base, mode),
        onset_step=of_step(base, mode),
        knee=knee(sizes, [row.figures for row in rows]),
        target=met,
        notes=(),
        elapsed_s=elapsed_s,
        record=record,
    )
