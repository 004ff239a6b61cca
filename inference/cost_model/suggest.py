"""Suggests which jobs of a table to measure first: those whose times narrow the intervals of the requested jobs most.

Around the population's mean the logarithm of a step is nearly linear in what a site deviates by, and the law of that is nearly
normal (`site_density.py`), so that the variance that remains after a run follows before it is made:

    cov(i, j)  = parts_i prior parts_j + site_sd^2 + SHARED alike_ij scale_i scale_j      of the expected logarithms
    own(i)     = (1 - SHARED) scale_i^2                                                   of one run alone
    cov       <- cov - cov(., c) cov(c, .) / (cov(c, c) + own(c))                         after a run of job c

The next run is the one after which the variances of the jobs asked about have the smallest sum. No measured time is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prism_jax.calibration.calibration import DEGREES, KNOBS, Calibration, shipped
from prism_jax.calibration.surrogate import SHARED, alike, sensitivities, surrogate_seconds
from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError
from prism_jax.core.registry import did_you_mean
from prism_jax.validation.calibration_report import SuggestedJob
from prism_jax.validation.job_table import read_job_table

from .site_runs import SiteRuns, of_version, run_corrections, site_prior, site_runs

MOST = 2000  # jobs of a table: all pairs of them are held against each other


@dataclass(frozen=True)
class JobLaw:
    """Joint law of the logarithms of the steps of some jobs of one site before any run of it.

    Attributes:
        parts: [job, knob] shares of the step's time.
        covariance: [job, job] of what runs can tell.
        own: [job] variance that a run has by itself.
    """

    parts: Floats
    covariance: Floats
    own: Floats

    def after(self, job: int) -> JobLaw:
        """Law of the jobs once `job` was measured."""
        of_job = self.covariance[job]
        return replace(self, covariance=self.covariance - np.outer(of_job, of_job) / (of_job[job] + self.own[job]))

    def sd(self, asked: Sequence[int]) -> float:
        """Standard deviation of a run of the jobs asked about: root of the mean of their variances."""
        return float(np.sqrt((np.diag(self.covariance) + self.own)[list(asked)].mean()))

    def best(self, n: int, asked: Sequence[int]) -> list[tuple[int, float]]:
        """Returns at most `n` jobs in the order in which to measure them, and the standard deviation that each leaves."""
        law, found, allowed = self, list[tuple[int, float]](), np.ones(len(self.own))
        for _ in range(min(n, len(self.own))):
            gain = (law.covariance[list(asked)] ** 2).sum(axis=0) / (np.diag(law.covariance) + law.own)
            job = int(np.argmax(np.where(allowed, gain, -1.0)))
            law, allowed[job] = law.after(job), 0.0
            found.append((job, law.sd(asked)))
        return found


def job_law(calibration: Calibration, runs: SiteRuns) -> JobLaw:
    """The law of the jobs of some runs, whose measured times are not looked at."""
    prior = site_prior(calibration, runs)
    parts = sensitivities(runs, run_corrections(calibration, runs))
    typical = prior.misfit * np.exp(prior.misfit_sd**2) * np.sqrt(DEGREES / (DEGREES - 2.0))  # root of the mean square
    scale = typical * np.where(runs.has_experts > 0.0, prior.expert_misfit, 1.0)
    of_site = parts @ prior.factor
    shared = SHARED * alike(parts, parts) * np.outer(scale, scale)
    return JobLaw(parts, of_site @ of_site.T + prior.site_sd**2 + shared, (1.0 - SHARED) * scale**2)


def suggest_runs(
    path: str | Path, n: int, asked: Sequence[str] = (), version: str = ""
) -> tuple[list[SuggestedJob], float]:
    """`n` jobs of a table (CSV; measured times are not needed) in the order in which to measure them, and the standard deviation
    of the logarithm of a step of the jobs asked about before any run.

    Args:
        asked: rows whose intervals are to be narrow; all if empty.
        version: of the software, or method; only such rows are looked at. Empty: all.

    Raises:
        DataError: the table cannot be read, is malformed, is of several sites, has more than `MOST` jobs, or has no such row or
            version.
        SpecError: no constants for a job's device.
    """
    rows = of_version(read_job_table(path, measured=False), version, path)
    if len(rows) > MOST:
        raise DataError(f"{Path(path).name}: {len(rows)} jobs, of which at most {MOST} can be held against each other.")
    names = [row.id for row in rows]
    for name in asked:
        if name not in names:
            raise DataError(f"--for {name}: {Path(path).name} has no such row{did_you_mean(name, names)}")
    calibration = shipped()
    runs = site_runs([replace(row, measured_s=1.0) for row in rows], calibration, left_out=np.zeros(len(rows)))
    law, about = job_law(calibration, runs), [names.index(name) for name in asked] or [*range(len(rows))]
    chosen = law.best(n, about)
    owner = _apart(law.parts, law.parts[[job for job, _ in chosen]]).argmin(axis=1)
    seconds = np.asarray(surrogate_seconds(runs, run_corrections(calibration, runs)))
    suggested = [
        SuggestedJob(
            names[job],
            float(seconds[job]),
            dict(zip(KNOBS, law.parts[job].tolist(), strict=True)),
            int((owner == k).sum()),
            sd,
        )
        for k, (job, sd) in enumerate(chosen)
    ]
    return suggested, law.sd(about)


def _apart(parts: Floats, others: Floats) -> Floats:
    """[row, other] squared distance."""
    return (parts**2).sum(axis=1)[:, None] + (others**2).sum(axis=1) - 2.0 * parts @ others.T
