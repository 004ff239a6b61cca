"""Pareto fronts: plans that no other plan beats in everything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats


def front(costs: Floats) -> NDArray[np.intp]:
    """Rows of `costs` [plan, criterion] that no other row beats: none is at most as large everywhere and smaller somewhere.

    Of equal rows the first is kept. Rows come in increasing order of the first criterion.
    """
    order = np.lexsort(costs.T[::-1])
    kept: list[int] = []
    for row in order:
        if not any((costs[k] <= costs[row]).all() for k in kept):
            kept.append(int(row))
    return np.array(kept, dtype=np.intp)
