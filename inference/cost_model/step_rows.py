"""From measured steps to the data of the calibration: an outline per row, and what stragglers add to its noise-free time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import stack, surrogate_of
from prism_jax.cost.efficiency import efficiency
from prism_jax.io.tables.steps.table import StepRow
from prism_jax.progress import Progress, part_of, silent
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.program import lower
from prism_jax.validation import job_of_row, typical_s

from .step_times_data import StepTimesData, step_times_data

MOST_SIMULATED = 150  # rows; of more, these many stand for all


def usable(rows: Sequence[StepRow], *, with_defects: bool = False) -> list[StepRow]:
    """Rows that became jobs and hold a time; those with a known defect only if asked for."""
    return [row for row in rows if row.model is not None and row.measured_s and (with_defects or not row.defect)]


def row_data(rows: Sequence[StepRow], progress: Progress = silent) -> StepTimesData:
    """Outlines and memberships of usable rows.

    Args:
        progress: called with the share that is done.
    """
    outlines = []
    for done, row in enumerate(rows, 1):
        model, cluster, plan = row.job
        outlines.append(surrogate_of(model, cluster, plan, efficiency(cluster.device.generation)))
        progress(0.5 * done / len(rows))
    straggling = stragglers(rows, part_of(progress, 0.5, 1.0))
    return step_times_data(
        stack(outlines),
        [row.measured_s or np.nan for row in rows],
        straggling,
        [row.job[0].has_experts for row in rows],
        [CalibrationKey.of(row.job[1].device, row.framework) for row in rows],
        [row.source for row in rows],
    )


def stragglers(rows: Sequence[StepRow], progress: Progress = silent) -> np.ndarray:
    """[row] logarithm of the median step over the noise-free one, under the default variability of the device.

    Notes:
        It hardly depends on anything but the number of devices and is a few per cent: of many rows, some are simulated, spread
        over the numbers of devices, and the others lie on a line between the means of their neighbours.
    """
    count = np.log2([row.job[2].n_devices for row in rows])
    order = np.argsort(count, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), MOST_SIMULATED)).astype(int))]
    found = np.zeros(len(chosen))
    for index, row in enumerate(chosen):
        found[index] = _straggler(rows[row])
        progress((index + 1) / len(chosen))
    if len(chosen) == len(rows):
        result = np.zeros(len(rows))
        result[chosen] = found
        return result
    levels = np.unique(count[chosen])
    means = np.array([found[count[chosen] == level].mean() for level in levels])
    return np.interp(count, levels, means)


def _straggler(row: StepRow) -> float:
    job = job_of_row(row, uncalibrated())
    return float(np.log(typical_s(job) / deterministic(lower(job, pad=True))))
