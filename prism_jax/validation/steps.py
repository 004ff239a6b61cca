"""Predicted against measured step times, row by row.

A row is a (model, cluster, plan, framework) with a measured step time. The prediction is the typical step (p50) under the usual
variability of its device, or the step without any variability. Its interval holds 90 % of what would be measured, given all that
the calibration of the cost model leaves open. Errors are relative: predicted / measured - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np

from ..calibration.band import outline_factors
from ..calibration.calibration import Calibration
from ..calibration.key import CalibrationKey
from ..calibration.surrogate import stack, surrogate_of
from ..cost.efficiency import efficiency
from ..errors import PrismError
from ..job import Job
from ..metrics import mfu
from ..progress import Progress, silent
from ..simulate.inputs import deterministic
from ..simulate.program import lower
from .baseline import with_baseline
from .groups import group_of
from .parts import parts_of
from .rows import MeasuredRow, RowResult
from .score import Validation, validation_of
from .typical import job_of_row, typical_s

N_REPEAT = 8  # draws of a calibration, with other deviations: bounds err by 3 % of the width of the interval
OUTSIDE = (0.05, 0.95)  # probabilities of the bounds of a 90 % interval

CalibrationOf = Callable[[MeasuredRow], Calibration | None]


def validate_steps(
    rows: Sequence[MeasuredRow],
    *,
    calibration_of: CalibrationOf = lambda row: None,
    left_out: str = "",
    deterministic_only: bool = False,
    seed: int = 0,
    progress: Progress = silent,
) -> Validation:
    """Predicts every supported row and scores it.

    Args:
        rows: measured rows.
        calibration_of: the calibration a supported row is predicted with; None is the shipped one. A `PrismError` of it makes
            the row unsupported.
        left_out: by what rows were grouped when the calibrations were fitted without them: source, gpu, model, or nothing.
        deterministic_only: leave variability out, so that the share of waiting for the slowest shows.
        seed: of the predictions.
        progress: called with the share of the rows that is done.
    """
    found = []
    for done, row in enumerate(rows, start=1):
        found.append(_validate(row, calibration_of, left_out, deterministic_only, seed))
        progress(done / len(rows))
    if left_out:
        kinds = [
            "" if one.error is None else row.job[1].device.generation for one, row in zip(found, rows, strict=True)
        ]
        found = with_baseline(found, kinds)
    return validation_of(found)


def _validate(
    row: MeasuredRow, calibration_of: CalibrationOf, left_out: str, deterministic_only: bool, seed: int
) -> RowResult:
    unsupported = row.unsupported or ("" if row.measured_s else "no measured time")
    if unsupported:
        return _refused(row, unsupported)
    try:
        return _predicted(row, calibration_of(row), left_out, deterministic_only, seed)
    except PrismError as error:
        return _refused(row, f"cannot be simulated: {error}")
    except Exception as error:  # a fault of one row may not cost thousands of others; it is counted and said
        return _refused(row, f"fault of prism-jax, please report it: {type(error).__name__}: {error}")


def _refused(row: MeasuredRow, reason: str) -> RowResult:
    return RowResult(row.id, row.source, row.measured_s, framework=row.framework, defect=row.defect, unsupported=reason)


def _predicted(
    row: MeasuredRow, calibration: Calibration | None, left_out: str, deterministic_only: bool, seed: int
) -> RowResult:
    assert row.measured_s is not None
    job = job_of_row(row, calibration, deterministic=deterministic_only)
    program = lower(job, pad=True)  # kept by JAX's side of the prediction too
    alone_s = deterministic(program)
    predicted_s = alone_s if deterministic_only else typical_s(job, seed)
    low, high = _interval(row, job, seed)
    low_s, high_s = low * predicted_s, high * predicted_s
    span, plan = row.measured_range, job.plan
    return RowResult(
        id=row.id,
        source=row.source,
        measured_s=row.measured_s,
        predicted_s=predicted_s,
        error=predicted_s / row.measured_s - 1.0,
        low_s=low_s,
        high_s=high_s,
        inside=low_s <= row.measured_s <= high_s,
        measured_range=span,
        in_range=None if span is None else span[0] <= predicted_s <= span[1],
        group=group_of(row, left_out) if left_out else "",
        device=job.cluster.device.name,
        model=job.model.name,
        framework=row.framework,
        n_devices=plan.n_devices,
        mfu=mfu(program.cost.model_flops, row.measured_s, job.cluster, plan.n_devices, plan.dtype),
        parts_s=parts_of(job, program.cost, alone_s),
        defect=row.defect,
    )


def _interval(row: MeasuredRow, job: Job, seed: int) -> tuple[float, float]:
    """Bounds of the interval over the prediction; rows have deviations of their own, whatever their place in the table."""
    one = stack([surrogate_of(job.model, job.cluster, job.plan, efficiency(job.cluster.device.generation))])
    own = crc32(row.id.encode()) + N_REPEAT * seed
    factors = [
        outline_factors(
            one,
            CalibrationKey.of(job.cluster.device, job.framework),
            job.model.has_experts,
            job.effective_calibration,
            own + k,
        )
        for k in range(N_REPEAT)
    ]
    low, high = np.quantile(np.concatenate(factors), OUTSIDE)
    return float(low), float(high)
