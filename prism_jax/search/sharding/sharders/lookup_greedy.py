"""Sharders that balance look-ups, as they are or weighed by the size of the table."""

from __future__ import annotations

import numpy as np

from ...._typing import Floats
from ..task import ShardingTask
from .base import Greedy


def lookups(task: ShardingTask) -> Floats:
    """[piece] columns x look-ups per sample."""
    return task.pieces.dims * task.pieces.pooling


def norm_lookups(task: ShardingTask) -> Floats:
    """[piece] look-ups per sample, without the width of a row."""
    return task.pieces.pooling.astype(float)


def size_lookups(task: ShardingTask) -> Floats:
    """[piece] columns x look-ups per sample x log10 of the rows: large tables miss the caches."""
    return lookups(task) * np.log10(np.maximum(task.pieces.rows, 2.0))


LOOKUP_GREEDY = Greedy("lookup_greedy", "most bytes looked up first, to the GPU with the fewest", lookups)
NORM_LOOKUP_GREEDY = Greedy("norm_lookup_greedy", "most look-ups first, whatever their width", norm_lookups)
SIZE_LOOKUP_GREEDY = Greedy("size_lookup_greedy", "bytes looked up x log10 of the rows, largest first", size_lookups)
