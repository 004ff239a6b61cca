"""Measured runs from the logs of jobs: a job file, and the typical step of the log that a run of it has written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import DataError, PrismError
from ...recorded.trace.step_log import StepLog
from ...recorded.trace.warm_up import without_warm_up
from ..job.load_job import load_job
from ..traces.open_trace import open_trace
from .job_table import MeasuredRun


class JobLog(NamedTuple):
    """A job (a file, or the name of a shipped job) and a log or trace of it."""

    job: str
    log: str


class LoggedRun(NamedTuple):
    """A measured run, and what people should know of its log."""

    run: MeasuredRun
    notes: tuple[str, ...]


def read_job_logs(logs: Sequence[JobLog], skip: int | None = None, unit: str | None = None) -> tuple[LoggedRun, ...]:
    """The runs: every job with the median step of its log; where entries are means over several steps, the mean of all steps.

    Args:
        logs: jobs and their logs.
        skip: first steps of every log to leave out; None: those that are warm-up.
        unit: of step times whose name does not say it: s, ms, us or ns.

    Raises:
        DataError, ConfigError: a job or a log cannot be read; names it.
    """
    return tuple(_run(one, index, skip, unit) for index, one in enumerate(logs, start=1))


def typical_step_s(log: StepLog) -> float:
    """Median over single steps; mean over all steps, where entries are means, seconds."""
    if np.median(log.n_steps) > 1:
        return float(np.average(log.step_s, weights=log.n_steps))
    return float(np.median(log.step_s))


def _counted(n: int) -> str:
    return "1 entry" if n == 1 else f"{n:,} entries"


def _run(one: JobLog, index: int, skip: int | None, unit: str | None) -> LoggedRun:
    try:
        job = load_job(one.job, [])
    except PrismError as error:
        raise DataError(f"--log {one.job}={one.log}: {error}") from None
    found, _ = without_warm_up(open_trace(one.log, unit=unit), skip)
    step_s = typical_step_s(found) if isinstance(found, StepLog) else float(np.median(found.step_s))
    name = f"{job.name} log {index}"
    file = Path(one.log).name
    notes = (f"{name}: typical step {step_s:.4g} s of {_counted(len(found.step_s))} of {file}", *found.notes)
    return LoggedRun(MeasuredRun(name, job, step_s), (notes[0], *(f"{file}: {note}" for note in notes[1:])))
