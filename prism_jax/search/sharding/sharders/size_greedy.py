"""Sharder that balances the sizes of tables."""

from __future__ import annotations

from ...._typing import Floats
from ..task import ShardingTask
from .base import Greedy


def size(task: ShardingTask) -> Floats:
    """[piece] rows x columns."""
    return task.pieces.rows * task.pieces.dims


SIZE_GREEDY = Greedy("size_greedy", "largest table first, to the GPU with the fewest parameters", size)
