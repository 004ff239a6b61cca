"""What looks wrong in values that are all valid: said, never acted on."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .columns import Column

GROUPS = ("kernel", "op", "metric", "benchmark", "message_bytes", "n_gpus", "run")
MIN_ROWS = 20
MIN_GAP = 100.0  # factor between neighbouring values
UNIT_STEP = (300.0, 3000.0)  # factor between the medians on both sides, about 1,000
MIN_SHARE = 0.01  # of the rows on either side


def suspicions(source: str, frame: pd.DataFrame, columns: list[Column]) -> list[str]:
    """Notes on one file's durations: all the same, or two heaps about 1,000 apart."""
    notes: list[str] = []
    for column in columns:
        if not column.is_duration or column.name not in frame:
            continue
        values = frame[column.name].dropna()
        if len(values) >= MIN_ROWS and values.nunique() == 1:
            notes.append(
                f"{source}: {column.name} is {values.iloc[0]:g} in all {len(values):,} rows. Is it the measured column?"
            )
        keys = [name for name in GROUPS if name in frame and name != column.name]
        values = values[values > 0]
        groups = (
            [part for _, part in values.groupby([frame.loc[values.index, key] for key in keys])] if keys else [values]
        )
        n_mixed = sum(_looks_mixed(group.to_numpy(np.float64)) for group in groups)
        if n_mixed:
            where = f" in {n_mixed:,} of {len(groups):,} groups of equal {', '.join(keys)}" if keys else ""
            notes.append(f"{source}: {column.name} falls into two heaps about 1,000 apart{where}. Are units mixed?")
    return notes


def _looks_mixed(values: np.ndarray) -> bool:
    if len(values) < MIN_ROWS:
        return False
    values = np.sort(values)
    ratio = values[1:] / values[:-1]
    cut = int(np.argmax(ratio)) + 1
    if ratio[cut - 1] < MIN_GAP or min(cut, len(values) - cut) < MIN_SHARE * len(values):
        return False
    return UNIT_STEP[0] <= np.median(values[cut:]) / np.median(values[:cut]) <= UNIT_STEP[1]
