"""What looks wrong in values that are all valid: said, never acted on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd

from prism_jax._typing import Floats

from ..columns import Column
from ..formats.raw_table import as_floats, column_of

GROUPS = (
    "kernel", "op", "metric", "benchmark", "system", "group", "message_bytes", "n_gpus", "n_steps", "input_size", "m", "n", "k",
)  # fmt: skip
MIN_ROWS = 20
MIN_GAP = 100.0  # factor between neighbouring values
UNIT_STEP = (300.0, 3000.0)  # factor between the medians on both sides, about 1,000
MIN_HEAP = 5  # values on either side


def suspicions(source: str, frame: pd.DataFrame, columns: Sequence[Column]) -> list[str]:
    """Notes on one file's durations: all the same, or two heaps about 1,000 apart."""
    notes: list[str] = []
    for column in columns:
        if not column.is_duration or column.name not in frame:
            continue
        values = as_floats(column_of(frame, column.name))
        good = values > 0
        if len(values) >= MIN_ROWS and good.all() and np.ptp(values) == 0:
            notes.append(
                f"{source}: {column.name} is {values[0]:g} in all {len(values):,} rows. Is it the measured column?"
            )
        keys = [name for name in GROUPS if name in frame and name != column.name]
        groups = _groups(cast(pd.DataFrame, frame[good]), values[good], keys)
        n_mixed = sum(_looks_mixed(group) for group in groups)
        if n_mixed:
            where = f" in {n_mixed:,} of {len(groups):,} groups of equal {', '.join(keys)}" if keys else ""
            notes.append(f"{source}: {column.name} falls into two heaps about 1,000 apart{where}. Are units mixed?")
    return notes


def _groups(frame: pd.DataFrame, values: Floats, keys: Sequence[str]) -> list[Floats]:
    """The values by equal keys; a blank is a key like any other."""
    if not keys or not len(values):
        return [values]
    number = np.zeros(len(values), np.int64)
    for key in keys:
        codes, uniques = pd.factorize(column_of(frame, key), use_na_sentinel=False)
        number, _ = pd.factorize(number * len(uniques) + codes)
    order = np.argsort(number, kind="stable")
    return np.split(values[order], np.flatnonzero(np.diff(number[order])) + 1)


def _looks_mixed(values: Floats) -> bool:
    if len(values) < MIN_ROWS or values.max() < UNIT_STEP[0] * values.min():
        return False
    values = np.sort(values)
    ratio = values[1:] / values[:-1]
    cut = int(np.argmax(ratio)) + 1
    if ratio[cut - 1] < MIN_GAP or min(cut, len(values) - cut) < MIN_HEAP:
        return False
    return bool(UNIT_STEP[0] <= np.median(values[cut:]) / np.median(values[:cut]) <= UNIT_STEP[1])
