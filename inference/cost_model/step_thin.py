"""Fewer rows of large sites: they count as `MAX_ROWS` in all, and a few hundred say what thousands do."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .step_times_data import StepTimesData, field_of, known_of
from .step_times_terms import MAX_ROWS

MOST = 150


def rows_of(data: StepTimesData, rows: NDArray[np.intp]) -> StepTimesData:
    """Some rows; names that none of them has are dropped."""
    arrays = {
        item.name: getattr(data, item.name)[rows]
        for item in fields(data)
        if isinstance(getattr(data, item.name), np.ndarray)
    }
    names = {}
    for level, known in data.names.items():
        field = field_of(level)
        index = arrays[field]
        always = [i for i, name in enumerate(known) if name in known_of(level)]
        used = np.unique([*index[index < len(known)], *always]).astype(int)
        place = np.full(len(known) + 1, len(used))
        place[used] = np.arange(len(used))
        arrays[field] = place[index]
        names[level] = tuple(known[i] for i in used)
    count = np.bincount(arrays["site"], minlength=len(names["site"]))[arrays["site"]]
    return replace(data, **arrays | {"weight": np.minimum(1.0, MAX_ROWS / count)}, names=names)


def few_of_each(owner: NDArray[Any], most: int = MOST, seed: int = 0) -> NDArray[np.intp]:
    """Rows, in order, of which no owner [row] has more than `most`; those of larger ones by chance.

    Which ones depends on the order of the owner's rows; `step_folds.few_rows` gives them one order.
    """
    rng = np.random.default_rng(seed)
    kept = [_some(np.flatnonzero(owner == name), most, rng) for name in np.unique(owner)]
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.intp)


def _some(rows: NDArray[np.intp], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return rows if len(rows) <= most else rng.choice(rows, most, replace=False)
