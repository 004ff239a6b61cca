"""StepGraph: the one representation of a step that the jitted code runs; its cell, padded shapes, runs of it on the host.

A row is one op on one *lane* (a pipeline stage) at one *level*. Lanes run their ops in level order; an op also waits for up to
`dep` predecessors on other lanes, each at an earlier level, plus a lag (the transfer between them). Members of a lane
(tensor-parallel ranks and whatever else synchronises inside every op) are not lanes: an op lasts as long as its slowest
member. Idle lanes and levels of a padded graph do nothing and cost (nearly) nothing: the engine stops after the levels that
are used, and a draw depends on its place only, so padding never changes a number.

    start = max(lane is free, predecessor d has ended + lag d)        end = start + duration

Three compiled loops over the same table run this cell (on the host, `decide` runs it with what decided each start, and
`graph.levels` op by op for many schedules). They differ in what their columns are and where durations come from:

| loop | columns | durations |
|---|---|---|
| `graph.propagate` | draws of one replica, at several network scores | made level by level from random numbers, inside the scan |
| `search.pipeline` | plans, or plans and draws | looked up by op signature, a few dozen rows for a whole table of levels |
| `placement.evaluator` | draws under one assignment | mean and spread of a node's slowest GPU, with noise that is kept |

They stay three. One loop would carry the axis of scores, which only the first has, through the gather from the ring in the
other two, and it would have to store a row of seconds per op and column where the second looks up signatures. The cell is
inlined: the loops lower to the same operations with and without it. They keep the ends of the last few levels, in a ring
(`ring_rows`).

What decided a start is kept as a small integer: 0 for the lane's previous op, d + 1 for predecessor d. Of those that arrive
together the first counts, so that one path leads back from every end, and its seconds add up to the step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints, Positions, Values
from ..schedule.order import Op


def cell(
    free: Values, arrivals: Iterable[Values], duration: Values, maximum: Callable[[Values, Values], Values]
) -> tuple[Values, Values]:
    """Start and end of the ops of one level, one per lane, in seconds.

    Args:
        free: [lane, ...] when each lane has ended what it ran before.
        arrivals: per predecessor slot [lane, ...], when its result has arrived: its end and the lag.
        duration: [lane, ...] of the ops.
        maximum: elementwise maximum of two arrays.
    """
    start = free
    for arrival in arrivals:
        start = maximum(start, arrival)
    return start, start + duration


@dataclass(frozen=True, eq=False)
class StepGraph:
    """Struct of arrays; `level` first, `lane` second.

    Attributes:
        compute_s: [level, lane, compute_class] noise-free compute seconds; zero where the lane idles.
        comm_s: [level, lane, comm_axis] noise-free exposed communication seconds inside the op.
        dep_level: [level, lane, dep] level of a predecessor, -1 for none.
        dep_lane: [level, lane, dep] lane of that predecessor.
        lag_s: [level, lane, dep] point-to-point seconds between the predecessor's end and this op.
        op: [level, lane] index into `ops`, -1 where the lane idles.
        ops: those of the rows, lane by lane in running order; `str(op)` is its name in a timeline.
        end_compute_s: [lane] work after the last op of a lane (optimizer).
        end_comm_s: [lane] exposed communication across replicas at the end of the step.
        send_s: [level, lane] noise-free point-to-point seconds that a blocking send keeps the lane busy at the end of the op
            (part of the op; its followers need no lag then). Zeros if not given.
    """

    compute_s: Floats
    comm_s: Floats
    dep_level: Ints
    dep_lane: Ints
    lag_s: Floats
    op: Ints
    ops: tuple[Op, ...]
    end_compute_s: Floats
    end_comm_s: Floats
    send_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.send_s.size == 0:
            object.__setattr__(self, "send_s", np.zeros(self.op.shape))

    @property
    def n_level(self) -> int:
        """Number of levels, idle ones included."""
        return int(self.compute_s.shape[0])

    @property
    def n_lane(self) -> int:
        """Number of lanes, idle ones included."""
        return int(self.compute_s.shape[1])

    @property
    def ring_depth(self) -> int:
        """Largest number of levels back to a predecessor, plus one: end times older than that are never read."""
        return ring_depth(self.dep_level)


def ring_depth(dep_level: Ints) -> int:
    """Returns the largest number of levels back to a predecessor [level, lane, dep], plus one."""
    level = np.arange(len(dep_level))[:, None, None]
    return int(np.where(dep_level >= 0, level - dep_level, 0).max(initial=0)) + 1


def ring_rows(dep_level: Ints, dep_lane: Ints, depth: int) -> Ints:
    """Row of a ring buffer of `depth` levels where a predecessor's end stands, [level, lane, dep]; the row after them for
    none.
    """
    n_lane = dep_level.shape[1]
    return np.where(dep_level >= 0, (dep_level % depth) * n_lane + dep_lane, depth * n_lane).astype(np.int32)


MIN_LEVELS, MIN_LANES, MIN_DEPTH = 64, 1, 4  # of padded graphs


def padded(n: int, least: int, factor: int = 4) -> int:
    """Next of `least`, `factor` times it and so on."""
    while least < n:
        least *= factor
    return least


def static_levels(n_level: int) -> int:
    """Levels of a loop that knows how many turns it makes: an eighth more than needed at most, for few programs."""
    step = max(16, 1 << (n_level.bit_length() - 4))
    return -(-n_level // step) * step


def pad_graph(graph: StepGraph) -> StepGraph:
    """Returns the graph padded with idle lanes and levels at the end, and with room for two dependencies."""
    levels, lanes = padded(graph.n_level, MIN_LEVELS), padded(graph.n_lane, MIN_LANES, 2)
    by_row = ((0, levels - graph.n_level), (0, lanes - graph.n_lane))
    more_dep = (0, 2 - graph.dep_level.shape[-1])
    by_lane = (by_row[1],)
    return replace(
        graph,
        compute_s=np.pad(graph.compute_s, (*by_row, (0, 0))),
        comm_s=np.pad(graph.comm_s, (*by_row, (0, 0))),
        dep_level=np.pad(graph.dep_level, (*by_row, more_dep), constant_values=-1),
        dep_lane=np.pad(graph.dep_lane, (*by_row, more_dep)),
        lag_s=np.pad(graph.lag_s, (*by_row, more_dep)),
        op=np.pad(graph.op, by_row, constant_values=-1),
        end_compute_s=np.pad(graph.end_compute_s, by_lane),
        end_comm_s=np.pad(graph.end_comm_s, by_lane),
        send_s=np.pad(graph.send_s, by_row),
    )


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
