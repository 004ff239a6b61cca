"""Predictions against measurements: step times and peak memory; what `prism-jax validate` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .._inference_loader import inference
from ..calibration.calibration import Calibration, shipped
from ..core.errors import DataError
from ..core.executor import ALONE, Workers
from ..core.processes import Progress, part, silent
from ..core.registry import did_you_mean
from ..core.report import RunRecord
from ..core.use_case import Argument, Option, use_case
from ..core.write_file import run_record
from ..cost.memory_layouts import ClassifiedLayout, MeasuredLayout, MemorySummary
from ..fits.load_fits import kept_calibration, refuse_other_device
from ..result.parameters import Seed
from .job_table import JOBS, MeasuredRun, read_job_table, read_memory_runs
from .report import MemoryOutcomes, MemoryValidationReport, StepsValidationReport
from .score import errors_of

if TYPE_CHECKING:
    from .score import MeasuredRow

WAYS = ("source", "gpu", "model", "framework", "scale")


@use_case(counts=True)
def validate_steps(
    *files: Annotated[
        str | Path,
        Argument(
            metavar="FILE...",
            columns=JOBS,
            key="file",
            recorded_as=lambda files: files[0] if len(files) == 1 else list(files),
        ),
    ],
    leave_out: Annotated[str | None, Option(metavar="GROUP")] = None,
    fit: Annotated[str | Path | None, Option(metavar="FILE")] = None,
    deterministic: bool = False,
    seed: Seed = 0,
    workers: Workers = Workers(),
    progress: Progress = silent,
) -> StepsValidationReport:
    """Turn rows into jobs, predict their typical step (p50), and print the error per row, by source and overall.

    Args:
        files: tables of jobs (CSV, also as .gz, or parquet; docs/job_table.md): columns step_time_s and job (a job file) or
            fields such as plan.tp; scored and, where groups are left out, fitted together.
        leave_out: score blindly: predict the rows of every group by a calibration fitted to the other rows; groups are source,
            gpu, model, framework or scale (number of devices).
        fit: predict with a calibration saved by `prism-jax calibrate`.
        deterministic: leave variability out of the prediction.
        seed: same seed, same answer.
        workers: processes that predict; on all processors if not given.
        progress: told what is being done.

    Raises:
        DataError: the table or the calibration cannot be read, or options contradict each other.

    Example:
        >>> validate_steps("steps.csv", leave_out="source").overall.median_ape  # doctest: +SKIP
    """
    _check_ways(leave_out, fit)
    workers.check()
    runs = [run for file in files for run in read_job_table(str(file))]
    from .score import MeasuredRow  # here, so that mistakes above do not wait for JAX

    return score_step_rows(
        [_row_of(run, MeasuredRow) for run in runs],
        files,
        leave_out=leave_out,
        fit=fit,
        deterministic=deterministic,
        seed=seed,
        workers=workers.or_all(),
        progress=progress,
    )


def score_step_rows(
    rows: Sequence[MeasuredRow],
    files: Sequence[str | Path],
    *,
    leave_out: str | None = None,
    fit: str | Path | None = None,
    deterministic: bool = False,
    seed: int = 0,
    workers: Workers = ALONE,
    progress: Progress = silent,
) -> StepsValidationReport:
    """Predict measured rows given as objects, and score them; options as those of `validate_steps`.

    Args:
        rows: of all files.
        files: that they are from, for the record.

    Raises:
        DataError: the calibration cannot be read, or options contradict each other.
    """
    _check_ways(leave_out, fit)
    from .steps import validate_steps as validate

    calibration_of = _calibration_of(rows, leave_out or "", fit, seed, workers, progress)
    outcome = validate(
        rows,
        calibration_of=calibration_of,
        left_out=leave_out or "",
        deterministic_only=deterministic,
        seed=seed,
        workers=workers,
        progress=part(progress, "predicting"),
    )
    inputs = {
        "file": files[0] if len(files) == 1 else list(files),
        "leave_out": leave_out,
        "fit": fit,
        "deterministic": deterministic,
    }
    record = RunRecord(**run_record(inputs, seed))
    report = StepsValidationReport(**vars(outcome), record=record)
    note = shipped_rows_note(report)
    return replace(report, notes=(note,)) if note else report


@use_case()
def validate_memory(file: Annotated[str | Path, Argument(metavar="FILE", columns=JOBS)]) -> MemoryValidationReport:
    """Predict which layouts run out of memory and how much the others need, and compare with what was measured.

    Args:
        file: CSV of jobs as for `validate steps`, with columns fits (true or false) or peak_memory_bytes; also as .gz.

    Raises:
        DataError: the file cannot be read.

    Example:
        >>> validate_memory("jobs.csv").overall.accuracy  # doctest: +SKIP
    """
    rows = [
        (
            MeasuredLayout(run.id, run.job.model, run.job.plan, run.job.cluster, run.fitted, run.peak_reserved_bytes),
            run.job,
        )
        for run in read_memory_runs(file)
    ]
    return memory_report(MemorySummary(tuple(ClassifiedLayout(row, job.memory) for row, job in rows)), file)


def memory_report(found: MemorySummary, file: str | Path) -> MemoryValidationReport:
    """Report on the predicted layouts of a file."""
    return MemoryValidationReport(
        overall=_outcomes(found),
        by_model={name: _outcomes(found.of_model(name)) for name in found.by_model()},
        record=RunRecord(**run_record({"file": file}, 0)),
    )


def shipped_rows_note(report: StepsValidationReport) -> str:
    """A warning where rows are of sources that the shipped calibration was fitted to, which it was predicted by; else empty."""
    if report.record.inputs["leave_out"] or report.record.inputs["fit"] is not None:
        return ""
    known = (shipped().record or {}).get("sources", {})
    seen = sum(row.source in known for row in report.rows)
    if not seen:
        return ""
    return (
        f"{seen} of {len(report.rows)} rows are of sources that shaped the shipped calibration: no blind score. "
        "`--leave-out source` gives one."
    )


def _row_of(run: MeasuredRun, made: type[MeasuredRow]) -> MeasuredRow:
    """A measured job as a row of the table it is from: what it leaves open stays so; its variability is that of its device."""
    job, seconds = run.job, None if isnan(run.measured_s) else run.measured_s
    triple, name = (job.model, job.cluster, job.stated_plan), job.software.name
    return made(run.id, run.source, seconds, run.measured_range, *triple, framework=name, open_plan=job.open_plan)


def _check_ways(leave_out: str | None, fit: str | Path | None) -> None:
    if leave_out is not None and leave_out not in WAYS:
        raise DataError(
            f"--leave-out: {leave_out!r} is unknown; known are {', '.join(WAYS)}{did_you_mean(leave_out, WAYS)}"
        )
    if leave_out is not None and fit is not None:
        raise DataError("--fit names a calibration, --leave-out fits its own ones. Give one of them.")


def _calibration_of(
    rows: Sequence[MeasuredRow],
    leave_out: str,
    fit: str | Path | None,
    seed: int,
    workers: Workers,
    progress: Progress,
) -> Callable[[Any], Calibration | None]:
    """Row -> the calibration that it is predicted with; None: the shipped one."""
    if fit is not None:
        given = kept_calibration(fit)

        def of_site(row: Any) -> Calibration:
            refuse_other_device(given, row.job[1].device, fit)
            return given

        return of_site
    if not leave_out:
        return lambda row: None
    import jax

    from .score import group_of

    told = part(progress, f"calibrating without each {leave_out}")
    folds = inference().step_folds(rows, leave_out, key=jax.random.key(seed), progress=told, workers=workers)
    return lambda row: folds[group_of(row, leave_out)]


def _outcomes(found: MemorySummary) -> MemoryOutcomes:
    counts = found.overall
    return MemoryOutcomes(
        n=counts.n,
        accuracy=counts.accuracy,
        majority_accuracy=counts.majority_accuracy,
        fits_called_fits=counts.fits_fits,
        fits_called_oom=counts.fits_oom,
        oom_called_fits=counts.oom_fits,
        oom_called_oom=counts.oom_oom,
        peak_bytes=errors_of(found.reserved_errors()),
    )
