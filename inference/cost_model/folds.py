"""Calibrations for blind scores: for every group of measured steps one that is fitted to all rows outside of it.

The data are an outline per row, and what stragglers add to its noise-free time. Large sources are thinned once, before anything
is fitted, so that folds differ by the group they lack and by nothing else. In every fold all rows stay in their places; those
of the group have no weight and no measured time, and members of a level that only they belong to stay unknown. What is compiled
for one fold then serves all. Every fit begins at the prior: one that began at the mode of all rows would have seen what it must
not know.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import jax
import numpy as np
from numpy.typing import NDArray

from prism_jax.calibration.calibration import Calibration, uncalibrated
from prism_jax.calibration.evidence import width_law
from prism_jax.calibration.surrogate import stack
from prism_jax.core.arrays import Floats
from prism_jax.core.content import content_hash
from prism_jax.core.errors import DataError
from prism_jax.core.executor import ALONE, Workers, answers_in_order
from prism_jax.core.processes import Progress, part_of, silent
from prism_jax.validation.costed import CostedJob, costed, job_of_row, step_times
from prism_jax.validation.score import MeasuredRow, group_of

from .calibrate import MOST, Calibrator, few_of_each
from .step_times import MAX_ROWS, StepTimesData, step_times_data


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
        [site_of(row) for row in rows],
        [one.job.open_fields for one in jobs],
    )


def site_of(row: MeasuredRow) -> str:
    """A source on one generation of devices: what a publication has of two is two clusters, each with its own software."""
    return f"{row.source} on {row.job[1].device.generation}"


def stragglers(jobs: Sequence[CostedJob], progress: Progress = silent) -> Floats:
    """[job] logarithm of the median step over the noise-free one, under the default variability of the device."""
    steps = step_times(jobs, progress=progress)
    return np.log(steps.typical_s / steps.noise_free_s)


PREPARED = 0.15  # share of the work that outlines and stragglers are


def step_folds(
    rows: Sequence[MeasuredRow],
    by: str,
    *,
    key: jax.Array,
    progress: Progress = silent,
    only: Collection[str] | None = None,
    workers: Workers = ALONE,
) -> dict[str, Calibration]:
    """Group -> the calibration that its rows have had no part in; groups are those of all rows that can be simulated.

    Args:
        rows: measured rows; those with a known defect are not fitted, but have a group.
        by: source, gpu or model.
        key: of the draws, the same for every fold.
        progress: called with the share that is done.
        only: groups to fit without; None: every one of them.
        workers: those of an executor share the groups; on this host alone, threads do, for which one program is compiled.

    Raises:
        DataError: nothing remains outside of a group.
        FitError: no mode is found.
    """
    kept = in_one_order(thinned_rows(usable(rows)))
    if not kept:
        raise DataError("no row can be simulated, has a time and is free of known defects: nothing to calibrate with")
    owner = np.array([group_of(row, by) for row in kept])
    groups = sorted({group_of(row, by) for row in usable(rows, with_defects=True)})
    if only is not None:
        groups = [group for group in groups if group in only]
    if len(groups) == 1 and only is None:
        raise DataError(
            f"all rows are of one {by}, {groups[0]}: nothing remains to calibrate with. Leave out another way."
        )
    fitted = [group for group in groups if (owner == group).any()]
    if any((owner == group).all() for group in fitted):
        raise DataError(f"all usable rows are of {owner[0]}: nothing remains to calibrate with. Leave out another way.")
    data = row_data(kept, part_of(progress, 0.0, PREPARED))
    needed = [*fitted, *([""] if len(fitted) < len(groups) else [])]  # the last: groups none of whose rows is fitted
    told = part_of(progress, PREPARED, 1.0)
    if workers.executor is not None:
        alone = partial(_fold_alone, data=data, content=content_hash(data), owner=owner, key=key)
        shared = dict(zip(needed, answers_in_order(alone, needed, workers, told), strict=True))
        return {group: shared.get(group) or shared[""] for group in groups}
    fit = partial(_fold, Calibrator(data), data, owner, key=key)
    found = {
        needed[0]: fit(needed[0])
    }  # alone: NumPyro cannot trace a model in two threads, and what is compiled serves all
    told(1.0 / len(needed))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for group, made in zip(needed[1:], pool.map(fit, needed[1:]), strict=True):
            found[group] = made
            told(len(found) / len(needed))
    return {group: found.get(group) or found[""] for group in groups}


def thinned_rows(rows: Sequence[MeasuredRow], most: int = MOST) -> list[MeasuredRow]:
    """Selects at most `most` rows of every source, in the order given; which ones does not depend on it."""
    return [rows[index] for index in few_rows(rows, most)]


def few_rows(rows: Sequence[MeasuredRow], most: int = MOST) -> NDArray[np.intp]:
    """Places of the rows of `thinned_rows`: by chance from those of a source in the order of their ids.

    Rows of one id are in the order of what they say. So the choice is that from a table sorted by its ids.
    """
    times = Counter(row.id for row in rows)

    def key(index: int) -> tuple[str, str, float]:
        row = rows[index]
        return row.id, content_hash(*row.job) if times[row.id] > 1 else "", row.measured_s or 0.0

    order = np.array(sorted(range(len(rows)), key=key), dtype=np.intp)
    owner = np.array([rows[index].source for index in order])
    return np.sort(order[few_of_each(owner, most)])


def in_one_order(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """The rows by what they say, not by their places in a table: an optimiser magnifies the rounding of sums."""
    return sorted(rows, key=lambda row: (row.source, content_hash(*row.job), row.measured_s or 0.0))


def without(data: StepTimesData, left_out: NDArray[np.bool_]) -> StepTimesData:
    """Data with the same rows in the same places; those that are left out [row] have no weight and no measured time."""
    n_site = len(data.names["site"])
    count = np.bincount(data.site[~left_out], minlength=n_site)[data.site]
    weight = np.where(left_out, 0.0, np.minimum(1.0, MAX_ROWS / np.maximum(count, 1)))
    return replace(data, weight=weight, log_measured=np.where(left_out, 0.0, data.log_measured))


_COMPILED: dict[str, Calibrator] = {}  # of the data that a worker saw last


def _fold_alone(
    group: str, *, data: StepTimesData, content: str, owner: NDArray[np.str_], key: jax.Array
) -> Calibration:
    """`_fold` in a worker, which compiles once for all groups of the same data."""
    if content not in _COMPILED:
        _COMPILED.clear()
        _COMPILED[content] = Calibrator(data)
    return _fold(_COMPILED[content], data, owner, group, key)


def _fold(
    calibrator: Calibrator, data: StepTimesData, owner: NDArray[np.str_], group: str, key: jax.Array
) -> Calibration:
    left_out = owner == group
    record = {"left_out": group, "rows": int((~left_out).sum())}
    made = calibrator.fit(without(data, left_out), key=key, record=record)
    return replace(made, width=width_law(group))
