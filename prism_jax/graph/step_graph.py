"""StepGraph: the one representation of a step that the jitted code runs; its cell, padded shapes.

A row is one op on one *lane* (a pipeline stage) at one *level*. Lanes run their ops in level order; an op also waits for up to
`dep` predecessors on other lanes, each at an earlier level, plus a lag (the transfer between them). Members of a lane
(tensor-parallel ranks and whatever else synchronises inside every op) are not lanes: an op lasts as long as its slowest
member. Idle lanes and levels of a padded graph do nothing and cost (nearly) nothing: the engine stops after the levels that
are used, and a draw depends on its place only, so padding never changes a number.

    start = max(lane is free, predecessor d has ended + lag d)        end = start + duration

Three compiled loops over the same table run this cell (on the host, `graph.walk` runs it with what decided each start, and
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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from ..core.arrays import Floats, Ints
from ..schedule.order import Op


@runtime_checkable  # the type checker of the tests asks
class Seconds(Protocol):
    """An array of NumPy or of JAX."""

    def __add__(self, other: Any, /) -> Any:
        """Adds elementwise."""
        ...


A = TypeVar("A", bound=Seconds)


def cell(
    free: A,
    arrivals: Iterable[A],
    duration: A,
    maximum: Callable[[A, A], A],
) -> tuple[A, A]:
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


MIN_LEVELS, MIN_LANES, MIN_DEPTH = 64, 1, 4


def padded(n: int, least: int, factor: int = 4) -> int:
    """Next of `least`, `factor` times it and so on."""
    while least < n:
        least *= factor
    return least


def static_levels(n_level: int) -> int:
    """Levels of a loop that knows how many turns it makes: an eighth more than needed at most, for few programs."""
    step = max(16, 1 << (n_level.bit_length() - 4))
    return -(-n_level // step) * step


def padded_shape(n_level: int, n_lane: int) -> tuple[int, int]:
    """Next common number of levels and of lanes."""
    return padded(n_level, MIN_LEVELS), padded(n_lane, MIN_LANES, 2)


def padded_depth(depth: int) -> int:
    """Next common depth of the ring buffer."""
    return padded(depth, MIN_DEPTH, 2)


def pad_graph(graph: StepGraph) -> StepGraph:
    """Returns the graph padded with idle lanes and levels at the end, and with room for two dependencies."""
    levels, lanes = padded_shape(graph.n_level, graph.n_lane)
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
