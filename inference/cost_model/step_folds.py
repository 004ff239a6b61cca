"""Calibrations for blind scores: for every group of measured steps one that is fitted to all rows outside of it.

Large sources are thinned once, before anything is fitted, so that folds differ by the group they lack and by nothing else. All
folds have as many rows: those that a group leaves free are filled with a row that is there already and counts nothing. What is
compiled for one fold then serves the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import jax
import numpy as np
from numpy.typing import NDArray

from prism_jax.calibration.calibration import Calibration
from prism_jax.errors import DataError
from prism_jax.io.tables.steps.table import StepRow
from prism_jax.progress import Progress, part_of, silent
from prism_jax.validation import group_of

from .calibrate import calibrate
from .step_rows import row_data, usable
from .step_thin import MOST, few_of_each, rows_of
from .step_times_data import StepTimesData

PREPARED = 0.15  # share of the work that outlines and stragglers are
FOLDS_KEPT = 10  # after as many, what was compiled is dropped: memory must not grow with the number of groups


def step_folds(
    rows: Sequence[StepRow], by: str, *, key: jax.Array, progress: Progress = silent
) -> dict[str, Calibration]:
    """Group -> the calibration that its rows have had no part in; groups are those of all rows that can be simulated.

    Args:
        rows: measured rows; those with a known defect are not fitted, but have a group.
        by: source, gpu or model.
        key: of the draws, the same for every fold.
        progress: called with the share that is done.

    Raises:
        DataError: nothing remains outside of a group.
        FitError: no mode is found.
    """
    kept = thinned_rows(usable(rows))
    if not kept:
        raise DataError("no row can be simulated, has a time and is free of known defects: nothing to calibrate with")
    owner = np.array([group_of(row, by) for row in kept])
    groups = sorted({group_of(row, by) for row in usable(rows, with_defects=True)})
    if len(groups) == 1:
        raise DataError(
            f"all rows are of one {by}, {groups[0]}: nothing remains to calibrate with. Leave out another way."
        )
    data = row_data(kept, part_of(progress, 0.0, PREPARED))
    found: dict[str, Calibration] = {}
    whole: Calibration | None = None
    for done, group in enumerate(groups, 1):
        outside = np.flatnonzero(owner != group)
        if len(outside) < len(kept):
            found[group] = _fold(data, outside, group, key)
        else:
            whole = whole or _fold(data, outside, "", key)
            found[group] = whole
        progress(PREPARED + (1.0 - PREPARED) * done / len(groups))
        if done % FOLDS_KEPT == 0:
            jax.clear_caches()
    return found


def thinned_rows(rows: Sequence[StepRow], most: int = MOST) -> list[StepRow]:
    """At most `most` rows of every source, by chance, in the order given."""
    return [rows[index] for index in few_of_each(np.array([row.source for row in rows]), most)]


def padded(data: StepTimesData, n_row: int) -> StepTimesData:
    """The same rows, and the last of them again without weight up to `n_row`."""
    place = np.minimum(np.arange(n_row), len(data.weight) - 1)
    arrays = {item.name: getattr(data, item.name) for item in fields(data)}
    wide = {name: value[place] for name, value in arrays.items() if isinstance(value, np.ndarray)}
    return replace(data, **wide | {"weight": np.where(np.arange(n_row) < len(data.weight), wide["weight"], 0.0)})


def _fold(data: StepTimesData, outside: NDArray[np.intp], group: str, key: jax.Array) -> Calibration:
    if not len(outside):
        raise DataError(f"all usable rows are of {group}: nothing remains to calibrate with. Leave out another way.")
    kept = padded(rows_of(data, outside), len(data.weight))
    return calibrate(kept, key=key, record={"left_out": group, "rows": len(outside)})
