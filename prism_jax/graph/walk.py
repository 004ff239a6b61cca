"""The recursion of `propagate` on the host, for few columns, and the critical path walked back from the end of the step.

    start = max(end of the lane's previous op, max_d(end of predecessor d + lag d))

What decided a start is kept as a small integer: 0 for the lane's previous op, d + 1 for predecessor d. Of those that arrive
together the first counts, so that one path leads back from every end, and its seconds add up to the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Positions
from .step_graph import StepGraph


@dataclass(frozen=True, eq=False)
class Decided:
    """Every op of a step, in several columns [level, lane, column].

    Attributes:
        start_s, end_s: of the ops.
        by: event that decided the start.
    """

    start_s: NDArray[Any]
    end_s: NDArray[Any]
    by: NDArray[np.int8]

    def path(self, graph: StepGraph, lane: Positions) -> tuple[Positions, Positions, NDArray[np.int8]]:
        """Level, lane and decider of every op [op, column] on the path that ends in `lane` [column]; level -1 before all."""
        column = np.arange(len(lane))
        level, rows = np.full(len(lane), len(self.by) - 1), []
        while (level >= 0).any():
            by = self.by[level, lane, column]
            rows.append((level, lane, by))
            own, dep = by == 0, np.maximum(by, 1) - 1
            before = np.where(own, level - 1, graph.dep_level[level, lane, dep])
            level, lane = np.where(level < 0, -1, before), np.where(own, lane, graph.dep_lane[level, lane, dep])
        levels, lanes, deciders = (np.stack(part) for part in zip(*rows, strict=True))
        return levels, lanes, deciders


def decide(graph: StepGraph, op_s: NDArray[Any], transfer: NDArray[Any]) -> Decided:
    """Runs a step and keeps the deciders of all starts.

    Args:
        graph: predecessors and lags.
        op_s: [level, lane, column] seconds of the ops.
        transfer: [level, lane, column] or [level, lane, dep or 1, column] factors of the lags.
    """
    lag_s, by, start_s = graph.lag_s.astype(op_s.dtype), np.zeros(op_s.shape, np.int8), np.empty_like(op_s)
    transfer = transfer if transfer.ndim == 4 else transfer[:, :, None]
    transfer = np.broadcast_to(transfer, (*op_s.shape[:2], lag_s.shape[2], op_s.shape[2]))
    end_s = np.zeros((len(op_s) + 1, *op_s.shape[1:]), op_s.dtype)  # the last row for ops without predecessor
    for level in range(len(op_s)):
        start = end_s[level - 1]
        for d, (dep_level, dep_lane) in enumerate(zip(graph.dep_level[level].T, graph.dep_lane[level].T, strict=True)):
            arrival = end_s[dep_level, dep_lane] + lag_s[level, :, d, None] * transfer[level, :, d]
            later = arrival > start
            by[level][later] = d + 1
            start = np.where(later, arrival, start)
        start_s[level], end_s[level] = start, start + op_s[level]
    return Decided(start_s, end_s[:-1], by)


@lru_cache(maxsize=64)
def noise_free_s(graph: StepGraph, dtype: np.dtype, lag: float = 1.0) -> float:
    """Seconds of the step with every factor one and lags times `lag`, in the precision of draws, so that both round alike."""
    n_level = np.flatnonzero((graph.op >= 0).any(axis=1))[-1] + 1
    parts = graph.compute_s.sum(axis=-1), graph.comm_s.sum(axis=-1) + graph.send_s
    op_s = sum((part.astype(dtype) for part in parts), np.zeros((), dtype))[:n_level]
    done = decide(graph, op_s[..., None], np.broadcast_to(np.asarray(lag, dtype), (*op_s.shape, 1)))
    end_s = done.end_s[-1, :, 0] + graph.end_compute_s.astype(dtype) + graph.end_comm_s.astype(dtype)
    return float(end_s.max())
