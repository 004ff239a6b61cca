"""Measured tables (fits of kernels, collectives, overlap) as the cost of a job, in place of presets of its device and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..._inference_loader import inference
from ...cost.measured import MeasuredTables
from ...errors import DataError, FailedFitError
from ...job import Job

N_DRAW = 24  # of the posterior of every table
OF_TABLES = 1000  # number of the first random key: apart from those of variability


@dataclass(frozen=True)
class JobWithTables:
    """A job whose cost measured tables decide.

    Attributes:
        told: which table applies to what, and what each leaves to the presets; in sentences.
    """

    job: Job
    told: tuple[str, ...] = ()


def with_tables(job: Job, fits: Sequence[tuple[str, Any]], *, seed: int = 0, force: bool = False) -> JobWithTables:
    """The job with the cost that the fits among `fits` (file, `inference.Fit`) describe; a later one wins over an earlier one.

    Notes: measured steps of the site say more than its tables: beside its calibration, tables are left aside, with a note.

    Raises:
        DataError: a fit is of other hardware, or says nothing of a step.
        FailedFitError: a fit failed its checks and `force` is not set.
    """
    tables: MeasuredTables | None = None
    told: list[str] = []
    for index, (file, fit) in enumerate(fits):
        found = _measured(fit, job, file, inference().random_key(seed, OF_TABLES + index), force)
        if found is None:
            _check_speaks_of_steps(fit, file)
            continue
        if job.effective_calibration.site is not None:
            told.append(f"{file}: its seconds are not used: the steps that the site was calibrated with say more")
            continue
        if found.covers:
            told.append(f"{file}: {', '.join(found.covers)} of {job.cluster.device.name}, as measured")
            tables = found.over(tables)
        told += [f"{file}: {note}" for note in found.notes]
    if tables is None:
        return JobWithTables(job, tuple(told))
    calibration = replace(job.effective_calibration, measured=tables)
    return JobWithTables(replace(job, cluster=tables.mean.on(job.cluster), calibration=calibration), tuple(told))


def _check_speaks_of_steps(fit: Any, file: str) -> None:
    if fit.describes_variability:
        return
    threats = fit.model.has("reliability")
    remedy = (
        "Give it to `prism-jax job --reliability`."
        if threats
        else f"`prism-jax fit report {file}` tells what is in it."
    )
    raise DataError(f"--fit {file}: a fit of {fit.model.name}, which says nothing of a step. {remedy}")


def _measured(fit: Any, job: Job, file: str, key: Any, force: bool) -> MeasuredTables | None:
    try:
        return fit.measured_cost(job.cluster, job.plan.dtype, N_DRAW, key=key, force=force)
    except DataError as error:
        raise DataError(f"--fit {file}: {error}") from None
    except FailedFitError as error:
        raise FailedFitError(error.why, file) from None
