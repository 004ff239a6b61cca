"""Compares the rows of a study with the best of them, as plain data, CSV or a data frame, and tells how sure their order is.

Jobs are compared by what they would measure on shared draws, and how often one beats the other.

    value measured = value predicted (1 + Monte Carlo error) x factor of the cost model

Factors of a draw share what the jobs have in common (`calibration/band.py`), so that it cancels in ratios: two separate
bands would hold it twice.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calibration.band import case_of, joint_factors
from ..core.arrays import Floats
from ..core.content import ByContent
from ..core.errors import DataError
from ..job.job import Job
from ..result.objective import MILLION, S_PER_HOUR
from ..tables.csv_rows import cell
from .figures import JobFigures

if TYPE_CHECKING:
    import pandas as pd


TIE = 1.96  # standard errors of the difference within which two values are not told apart


@dataclass(frozen=True, eq=False)
class StudyRow(ByContent):
    """One point of a study.

    Attributes:
        settings: field -> value along the axes.
        figures: None where the job is impossible; `problem` says why.
        relative, relative_error: value over that of the best row, and its Monte Carlo standard error; NaN without figures.
        is_best: the best row; is_tied: the draws cannot tell it from the best.
    """

    settings: Mapping[str, str]
    figures: JobFigures | None
    problem: str
    relative: float = nan
    relative_error: float = nan
    is_best: bool = False
    is_tied: bool = False


@dataclass(frozen=True)
class StudyTable:
    """Rows in the order of the grid.

    Attributes:
        axes: fields that vary.
        objective, unit: what the rows are compared by.
    """

    axes: tuple[str, ...]
    objective: str
    unit: str
    rows: tuple[StudyRow, ...]

    @property
    def best(self) -> StudyRow | None:
        """The row with the least value; None where no job is possible."""
        return next((row for row in self.rows if row.is_best), None)

    def records(self) -> list[dict[str, Any]]:
        """One flat mapping per row: the axes, every figure, the comparison, the reason of an impossible job."""
        empty = dict.fromkeys(JobFigures.__dataclass_fields__, np.nan)
        return [
            {
                **row.settings,
                **(asdict(row.figures) if row.figures else empty),
                "relative": row.relative,
                "relative_error": row.relative_error,
                "is_best": row.is_best,
                "is_tied": row.is_tied,
                "problem": row.problem,
            }
            for row in self.rows
        ]

    def to_frame(self) -> pd.DataFrame:
        """`records` as a data frame."""
        import pandas as pd  # takes .3 s, and commands have no use for it

        return pd.DataFrame(self.records())

    def to_csv(self) -> str:
        """`records` as CSV; what is not known is empty."""
        records = self.records()
        out = io.StringIO()
        names = list(records[0])
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writerow({name: cell(name) for name in names})
        for record in records:
            writer.writerow({name: "" if value != value else cell(value) for name, value in record.items()})
        return out.getvalue()


def study_table(
    axes: Sequence[str],
    settings: Sequence[Mapping[str, str]],
    figures: Sequence[JobFigures | None],
    problems: Sequence[str],
    objective: str,
    unit: str,
    sample_unit: str = "tokens",
) -> StudyTable:
    """Rows compared with the best of those that fit into memory, or of all if none does.

    Notes:
        Seconds of steps of unlike batches or numbers of GPUs say nothing; they become GPU-hours per million tokens (images,
        samples: `sample_unit`).
    """
    per_token = np.array([own.n_devices / own.tokens_per_step if own else np.nan for own in figures])
    scale = np.ones(len(figures))
    if unit == "s" and np.nanmin(per_token, initial=np.inf) < np.nanmax(per_token, initial=-np.inf):
        objective, unit = f"{objective} GPU-hours per million {sample_unit}", "GPU-hours"
        scale = per_token * MILLION / S_PER_HOUR
    values = scale * [own.value if own else np.nan for own in figures]
    errors = scale * [own.value_error if own else np.nan for own in figures]
    fits = np.array([bool(own and own.fits) for own in figures])
    ranked = np.where(fits if fits.any() else np.isfinite(values), values, np.inf)
    best = int(np.argmin(ranked)) if np.isfinite(ranked).any() else -1
    rows = []
    for k, own in enumerate(figures):
        ratio = error = np.nan
        if own and best >= 0:
            ratio = values[k] / values[best]
            error = 0.0 if k == best else ratio * float(np.hypot(errors[k] / values[k], errors[best] / values[best]))
        near = k != best and abs(ratio - 1.0) <= TIE * error
        rows.append(StudyRow(settings[k], own, problems[k], float(ratio), float(error), k == best, bool(near)))
    return StudyTable(tuple(axes), objective, unit, tuple(rows))


N_REPEAT = 64  # of the draws of a calibration: members that no run has measured are drawn anew
BAND = (0.05, 0.95)


def paired_factors(jobs: Sequence[Job], seed: int = 0, n_repeat: int = N_REPEAT) -> Floats:
    """[draw, job] factors between the steps that would be measured at one site and the predicted ones.

    Args:
        jobs: may differ in model, cluster, device, plan and software.
        seed: same seed, same draws.
        n_repeat: times that every draw of the calibration is taken.

    Raises:
        DataError: the jobs are calibrated in different ways.
        SpecError: no constants for a device.
    """
    calibration = jobs[0].effective_calibration
    if any(job.effective_calibration != calibration for job in jobs):
        raise DataError(
            "the jobs have different calibrations, whose errors have nothing in common. Give all jobs one of them."
        )
    cases = [case_of(job.model, job.cluster, job.plan, calibration, job.framework, job.open_fields) for job in jobs]
    factors = joint_factors(cases, calibration, seed, n_repeat)
    rng = np.random.default_rng([seed, 10])
    for k, job in enumerate(jobs):
        if job.level is not None:  # its own log leaves nothing else open
            factors[:, k] = np.exp(job.level.log_sd * rng.normal(size=len(factors)))
    return factors


def paired_values(values: Sequence[float], errors: Sequence[float], factors: Floats, seed: int = 0) -> Floats:
    """[draw, job] what would be measured of every job.

    Args:
        values, errors: [job] predicted, in one unit, and their Monte Carlo standard errors.
        factors: as `paired_factors` has them.
    """
    score = np.random.default_rng([seed, 11]).normal(size=factors.shape)
    return np.asarray(values) * np.exp(np.asarray(errors) / np.asarray(values) * score) * factors


def prob_less(measured: Floats) -> Floats:
    """[job, other] share of draws in which the value of a job is less than that of the other; equal ones count half."""
    own, other = measured[:, :, None], measured[:, None, :]
    return (own < other).mean(axis=0) + 0.5 * (own == other).mean(axis=0)


def prob_least(measured: Floats) -> Floats:
    """[job] share of draws in which it has the least value."""
    return np.bincount(measured.argmin(axis=1), minlength=measured.shape[1]) / len(measured)


def ratio_bands(measured: Floats, base: int) -> Floats:
    """[job, 2] bounds of the central 90% of a job's value over that of job `base`."""
    return np.quantile(measured / measured[:, [base]], BAND, axis=0).T


@dataclass(frozen=True)
class Comparison:
    """Jobs in the order given.

    Attributes:
        table: figures and predicted ratios, by axis `JOB`.
        ratios: [job] 90% interval of what would be measured of a job over that of the best by prediction.
        prob_less: [job, other] probability that a job's objective would be measured to be less than that of the other.
        prob_best: [job] that it would be measured to be the least of all.
    """

    table: StudyTable
    ratios: tuple[tuple[float, float], ...]
    prob_less: tuple[tuple[float, ...], ...]
    prob_best: tuple[float, ...]


JOB = "job"


def unit_of_samples(jobs: Sequence[Job]) -> str:
    """Unit of the work of a step of the jobs: tokens, images; samples where they differ."""
    units = {job.model.sample_unit for job in jobs}
    return units.pop() if len(units) == 1 else "samples"


def compared(
    names: Sequence[str], jobs: Sequence[Job], figures: Sequence[JobFigures], objective: str, unit: str, seed: int = 0
) -> Comparison:
    """Jobs compared by an objective.

    Args:
        figures: of the jobs; their `value` is the objective in its `unit`.

    Raises:
        DataError: the jobs are calibrated in different ways.
    """
    settings = [{JOB: name} for name in names]
    table = study_table([JOB], settings, figures, [""] * len(jobs), objective, unit, unit_of_samples(jobs))
    predicted = [row.relative for row in table.rows]
    errors = [row.relative * own.value_error / own.value for row, own in zip(table.rows, figures, strict=True)]
    measured = paired_values(predicted, errors, paired_factors(jobs, seed), seed)
    base = next(k for k, row in enumerate(table.rows) if row.is_best)
    return Comparison(
        table,
        tuple((low, high) for low, high in ratio_bands(measured, base).tolist()),
        tuple(map(tuple, prob_less(measured).tolist())),
        tuple(prob_least(measured).tolist()),
    )
