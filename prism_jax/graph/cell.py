"""The cell of the max-plus recurrence: when an op starts and ends, given its lane, its predecessors and its duration.

    start = max(lane is free, predecessor d has ended + lag d)        end = start + duration

Three loops over the same table of levels and lanes run it. They differ in what their columns are and where durations come from:

| loop | columns | durations |
|---|---|---|
| `graph.propagate` | draws of one replica, at several network scores | made level by level from random numbers, inside the scan |
| `search.pipeline` | plans, or plans and draws | looked up by op signature, a few dozen rows for a whole table of levels |
| `placement.step` | draws under one assignment | mean and spread of a node's slowest GPU, with noise that is kept |

They stay three loops. One loop would carry the axis of scores, which only the first has, through the gather from the ring in the
other two, and it would have to store a row of seconds per op and column where the second looks up signatures. The cell is
inlined: the loops lower to the same operations with and without it.

The loops keep the ends of the last few levels only, in a ring whose rows `step_graph.ring_rows` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable


@runtime_checkable  # the type checker of the tests asks
class Seconds(Protocol):
    """An array of NumPy or of JAX."""

    def __add__(self, other: Any, /) -> Any:
        """Elementwise sum."""
        ...


A = TypeVar("A", bound=Seconds)


def cell(
    free: A,
    arrivals: Iterable[A],
    duration: A,
    maximum: Callable[[A, A], A],
    together: Callable[[A], A] | None = None,
) -> tuple[A, A]:
    """Start and end of the ops of one level, one per lane, in seconds.

    Args:
        free: [lane, ...] when each lane has ended what it ran before.
        arrivals: per predecessor slot [lane, ...], when its result has arrived: its end and the lag.
        duration: [lane, ...] of the ops.
        maximum: elementwise maximum of two arrays.
        together: delays starts further, from [lane, ...] to the same; for ops that start in all replicas at once.
    """
    start = free
    for arrival in arrivals:
        start = maximum(start, arrival)
    if together is not None:
        start = together(start)
    return start, start + duration
