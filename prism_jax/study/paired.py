"""How sure an order of jobs is: what they would measure on shared draws, and how often one beats the other.

    value measured = value predicted (1 + Monte Carlo error) x factor of the cost model

Factors of a draw share what the jobs have in common (`calibration/joint.py`), so that it cancels in ratios: two separate
bands would hold it twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._typing import Floats
from ..calibration.joint import case_of, joint_factors
from ..errors import DataError
from ..job import Job

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
    """[job, 2] bounds of the central 90 % of a job's value over that of job `base`."""
    return np.quantile(measured / measured[:, [base]], BAND, axis=0).T
