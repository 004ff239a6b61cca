"""One order for the rows of a table, whatever order its file has, so that sums and fingerprints do not depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .data.columns import Column

MAX_KEY = 2**62


def in_one_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows sorted by all columns, texts first; rows that are equal in all of them cannot be told apart."""
    order = _order(frame)
    return frame if (np.diff(order) == 1).all() else frame.take(order).reset_index(drop=True)


def rows_follow_time(frame: pd.DataFrame, columns: Sequence[Column]) -> bool:
    """Whether the order of the rows says something: they are steps, and not all have a number."""
    of_steps = any(column.name == "step" for column in columns)
    return of_steps and ("step" not in frame or bool(frame["step"].isna().any()))


def _order(frame: pd.DataFrame) -> NDArray[np.intp]:
    names = sorted(map(str, frame.columns))
    is_number = {name: pd.api.types.is_numeric_dtype(frame[name]) for name in names}
    texts = _combined([_codes(frame[name]) for name in names if not is_number[name]])
    numbers = [frame[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in names if is_number[name]]
    keys = [*reversed(numbers), *reversed(texts)]  # the last is sorted by first
    return np.lexsort(keys) if keys else np.arange(len(frame))


def _codes(values: Any) -> tuple[NDArray[np.int64], int]:
    """Position of every value among the sorted distinct ones, blank first, and how many positions there are."""
    codes, distinct = pd.factorize(values, sort=True)
    return codes.astype(np.int64) + 1, len(distinct) + 1


def _combined(columns: list[tuple[NDArray[np.int64], int]]) -> list[NDArray[np.int64]]:
    """As few keys as hold all codes: one sort is dearer than one sum."""
    keys: list[tuple[NDArray[np.int64], int]] = []
    for codes, n in columns:
        if keys and keys[-1][1] * n < MAX_KEY:
            before, n_before = keys.pop()
            keys.append((before * n + codes, n_before * n))
        else:
            keys.append((codes, n))
    return [key for key, _ in keys]
