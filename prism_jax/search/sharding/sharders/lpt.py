"""LPT: longest processing time first, on the milliseconds that the cost model predicts.

Source: Graham, Bounds on multiprocessing timing anomalies, 1969: at most 4/3 - 1/(3n) times the optimum of one part.
"""

from __future__ import annotations

from ...._typing import Floats
from ..task import WHOLE, ShardingTask
from .base import Greedy


def predicted_s(task: ShardingTask) -> Floats:
    """[piece] mean seconds of all parts of a step together, on the rank that holds it."""
    return task.seconds_s[WHOLE].max(axis=1).sum(axis=0).mean(axis=-1)


LPT = Greedy("lpt", "longest predicted milliseconds first, to the GPU with the least", predicted_s)
