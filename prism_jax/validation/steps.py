"""Predicted against measured step times, row by row.

A row is a (model, cluster, plan, framework) with a measured step time. The prediction is the typical step (p50) under the usual
variability of its device, or the step without any variability. Its interval holds 90% of what would be measured, given all that
the calibration of the cost model leaves open. Errors are relative: predicted / measured - 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from math import hypot
from typing import NamedTuple

import numpy as np

from ..calibration.band import unsaid_factor
from ..calibration.calibration import Calibration
from ..calibration.key import workload_of
from ..core.errors import PrismError
from ..core.executor import ALONE, Workers, answers_in_order
from ..core.processes import Progress, part_of, silent
from ..framework.software import SOFTWARE_VALUES
from ..job.job import Job
from ..system.hardware import mfu
from .costed import CostedJob, costed, evidence_of, intervals, job_of_row, parts_of, step_times
from .score import MeasuredRow, RowResult, Validation, group_of, validation_of, with_baseline

LEAST_SHARED = 400  # rows that take longer than processes to start
PART, LEAST_PARTS = 200, 12  # rows of a part, which are predicted together; parts of small tables
COSTED, SIMULATED = 0.4, 0.6  # share of the work that costs are, and of what remains that simulations are

CalibrationOf = Callable[[MeasuredRow], Calibration | None]


def validate_steps(
    rows: Sequence[MeasuredRow],
    *,
    calibration_of: CalibrationOf = lambda row: None,
    left_out: str = "",
    deterministic_only: bool = False,
    seed: int = 0,
    workers: Workers = ALONE,
    progress: Progress = silent,
) -> Validation:
    """Predicts every supported row and scores it.

    Args:
        rows: measured rows.
        calibration_of: the calibration a supported row is predicted with; None is the shipped one. A `PrismError` of it makes
            the row unsupported.
        left_out: by what rows were grouped when the calibrations were fitted without them: a key of `groups.GROUPS`, or nothing.
        deterministic_only: leave variability out, so that the share of waiting for the slowest shows.
        seed: of the predictions.
        workers: processes that share the rows; errors and bounds are the same with any.
        progress: called with the share of the work that is done.
    """
    asked = _Asked(left_out, deterministic_only, seed)
    if workers.is_alone or len(rows) < (LEAST_SHARED if workers.executor is None else 2):
        found = _results(rows, calibration_of, asked, progress)
    else:
        found = _shared(rows, calibration_of, asked, workers, progress)
    return validation_of(_with_baselines(found, rows) if left_out else found)


class _Asked(NamedTuple):
    """Options of `validate_steps` that a row's result depends on."""

    left_out: str
    deterministic_only: bool
    seed: int


def _shared(
    rows: Sequence[MeasuredRow], calibration_of: CalibrationOf, asked: _Asked, workers: Workers, progress: Progress
) -> list[RowResult]:
    """Results of all rows, from several processes that take turns at parts of them."""
    size = max(1, min(PART, -(-len(rows) // LEAST_PARTS)))
    tasks = [_calibrated(rows[at : at + size], calibration_of) for at in range(0, len(rows), size)]
    parts = answers_in_order(partial(_part, asked=asked), tasks, workers, progress)
    return [result for part in parts for result in part]


class _Part(NamedTuple):
    rows: Sequence[MeasuredRow]
    unlike: Sequence[Calibration | str | None]
    which: Sequence[int]


def _calibrated(rows: Sequence[MeasuredRow], calibration_of: CalibrationOf) -> _Part:
    """Rows, the unlike calibrations among theirs (or why there is none), and which is whose."""
    own = [_calibration(row, calibration_of) for row in rows]
    unlike = list({id(one): one for one in own}.values())
    number = {id(one): at for at, one in enumerate(unlike)}
    return _Part(rows, unlike, [number[id(one)] for one in own])


def _part(part: _Part, *, asked: _Asked) -> list[RowResult]:
    """Results of some rows; what a worker does."""
    rows, unlike, which = part
    by_row = {id(row): unlike[at] for row, at in zip(rows, which, strict=True)}

    def calibration_of(row: MeasuredRow) -> Calibration | None:
        found = by_row[id(row)]
        if isinstance(found, str):
            raise PrismError(found)
        return found

    return _results(rows, calibration_of, asked, silent)


def _calibration(row: MeasuredRow, calibration_of: CalibrationOf) -> Calibration | str | None:
    """The calibration of a row, or why it has none; a row that is not predicted needs none."""
    if _unpredicted(row):
        return None
    try:
        return calibration_of(row)
    except Exception as error:
        return str(error)


def _results(
    rows: Sequence[MeasuredRow], calibration_of: CalibrationOf, asked: _Asked, progress: Progress
) -> list[RowResult]:
    """Results of all rows, in their order."""
    costs = []
    for done, row in enumerate(rows, start=1):
        costs.append(_costed(row, calibration_of, asked.deterministic_only))
        progress(COSTED * done / len(rows))
    jobs = [one for one in costs if isinstance(one, CostedJob)]
    outcomes = iter(_predictions(jobs, asked, part_of(progress, COSTED, 1.0)))
    found, evidence = [], iter(evidence_of(jobs))
    for row, one in zip(rows, costs, strict=True):
        known, outcome = (next(evidence), next(outcomes)) if isinstance(one, CostedJob) else ((None, 1.0), one)
        if isinstance(one, CostedJob) and isinstance(outcome, _Prediction):
            found.append(_result(row, one, outcome, known, asked))
        else:
            found.append(_refused(row, str(outcome)))
    return found


def _with_baselines(found: Sequence[RowResult], rows: Sequence[MeasuredRow]) -> list[RowResult]:
    """Results with the trivial prediction next to them: typical is what models of the same kind reach."""
    done = list(found)
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, (one, row) in enumerate(zip(found, rows, strict=True)):
        if one.error is not None:
            by_kind[workload_of(row.job[0])].append(index)
    for members in by_kind.values():
        own = with_baseline([found[i] for i in members], [rows[i].job[1].device.generation for i in members])
        for index, one in zip(members, own, strict=True):
            done[index] = one
    return done


class _Prediction(NamedTuple):
    """Seconds of the noise-free and of the typical step, and bounds of the interval over the latter."""

    noise_free_s: float
    typical_s: float
    low: float
    high: float


def _unpredicted(row: MeasuredRow) -> str:
    """Why a row is not predicted at all; empty if it is."""
    return row.unsupported or ("" if row.measured_s else "no measured time")


def _costed(row: MeasuredRow, calibration_of: CalibrationOf, deterministic_only: bool) -> CostedJob | str:
    """The job of a row with its costs, or why there is none."""
    if why := _unpredicted(row):
        return why
    try:
        return costed(job_of_row(row, calibration_of(row), deterministic=deterministic_only), row.assumed)
    except Exception as error:
        return _reason(error)


def _predictions(jobs: Sequence[CostedJob], asked: _Asked, progress: Progress = silent) -> list[_Prediction | str]:
    """Prediction of every job, or why there is none; where some fault is, halves are tried until it stands alone."""
    if not jobs:
        return []
    try:
        simulated = part_of(progress, 0.0, SIMULATED)
        steps = step_times(jobs, asked.seed, simulated, deterministic=asked.deterministic_only)
        bounds = intervals(jobs, asked.seed, part_of(progress, SIMULATED, 1.0))
    except Exception as error:
        middle = len(jobs) // 2
        return (
            [*_predictions(jobs[:middle], asked), *_predictions(jobs[middle:], asked)] if middle else [_reason(error)]
        )
    return [_Prediction(*own) for own in np.column_stack([*steps, bounds]).tolist()]


def _reason(error: Exception) -> str:
    """A fault of one row may not cost thousands of others; it is counted and said."""
    if isinstance(error, PrismError):
        return f"cannot be simulated: {error}"
    return f"fault of prism-jax, please report it: {type(error).__name__}: {error}"


def _refused(row: MeasuredRow, reason: str) -> RowResult:
    return RowResult(row.id, row.source, row.measured_s, framework=row.framework, defect=row.defect, unsupported=reason)


def _result(
    row: MeasuredRow, one: CostedJob, found: _Prediction, evidence: tuple[dict[str, float] | None, float], asked: _Asked
) -> RowResult:
    assert row.measured_s is not None
    job, plan, span = one.job, one.job.plan, row.measured_range
    predicted_s = found.noise_free_s if asked.deterministic_only else found.typical_s
    reasons, widened = evidence
    low_s, high_s = found.low * predicted_s, found.high * predicted_s
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
        group=group_of(row, asked.left_out) if asked.left_out else "",
        device=job.cluster.device.name,
        model=job.model.name,
        framework=row.framework,
        n_devices=plan.n_devices,
        mfu=mfu(one.cost.model_flops, row.measured_s, job.cluster, plan.n_devices, plan.dtype),
        parts_s=parts_of(plan, one.cost, one.prompt_cost, found.noise_free_s),
        defect=row.defect,
        assumed=tuple(str(item) for item in row.assumed),
        software=_stated_software(job),
        reasons=reasons,
        widened=widened,
        open_sd=unsaid_factor(job.effective_calibration) * hypot(*(item.sd for item in job.open_fields + one.doubts)),
    )


def _stated_software(job: Job) -> dict[str, str]:
    """Choices of the software that the row states."""
    is_open = job.open_software
    stated = (name for name in SOFTWARE_VALUES if name not in is_open)
    return {name: str(getattr(job.plan.software, name)) for name in stated}
