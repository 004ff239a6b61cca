"""From measured steps to the data of the calibration: an outline per row, and what stragglers add to its noise-free time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prism_jax._typing import Floats
from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.surrogate import stack
from prism_jax.progress import Progress, part_of, silent
from prism_jax.validation.costed import CostedJob, costed, job_of_row
from prism_jax.validation.rows import MeasuredRow
from prism_jax.validation.typical import step_times

from .step_times_data import StepTimesData, step_times_data


def usable(rows: Sequence[MeasuredRow], *, with_defects: bool = False) -> list[MeasuredRow]:
    """Rows that state their whole job and hold a time; those with a known defect or with assumptions only if asked for."""
    known = [row for row in rows if row.model is not None and row.measured_s]
    return known if with_defects else [row for row in known if not row.defect and not row.assumed]


def row_data(rows: Sequence[MeasuredRow], progress: Progress = silent) -> StepTimesData:
    """Outlines and memberships of usable rows.

    Args:
        progress: called with the share that is done.
    """
    jobs = []
    for done, row in enumerate(rows, 1):
        jobs.append(costed(job_of_row(row, uncalibrated())))
        progress(0.5 * done / len(rows))
    return step_times_data(
        stack([one.outline for one in jobs]),
        [row.measured_s or np.nan for row in rows],
        stragglers(jobs, part_of(progress, 0.5, 1.0)),
        [row.job[0].has_experts for row in rows],
        [one.setting for one in jobs],
        [row.source for row in rows],
        [one.job.open_fields for one in jobs],
    )


def stragglers(jobs: Sequence[CostedJob], progress: Progress = silent) -> Floats:
    """[job] logarithm of the median step over the noise-free one, under the default variability of the device."""
    steps = step_times(jobs, progress=progress)
    return np.log(steps.typical_s / steps.noise_free_s)
