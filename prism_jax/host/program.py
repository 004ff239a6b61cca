"""HostProgram: what the hosts of some ranks do in one step, one call of the driver after another.

Calls of a rank stand in the order of their starts, whichever thread made them: the threads of a training step wait for each
other. Collectives of all ranks stand in the same columns; calls that do nothing fill the gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._core.content import ByContent
from .._typing import Floats, Ints
from ..errors import DataError


class Action(IntEnum):
    """What a call does beside taking host time."""

    NOTHING = 0
    KERNEL = 1  # starts work on a stream
    COPY = 2  # the same, and the host waits for its end
    WAIT = 3  # the host waits for its stream
    WAIT_ALL = 4  # the host waits for all streams
    JOIN = 5  # its stream waits for communication
    COLLECTIVE = 6  # starts work that ends on all ranks together


STARTS = (Action.KERNEL, Action.COLLECTIVE)  # and return at once
COMPUTE, COMMUNICATION, SIDE = 0, 1, 2  # streams; at the side are copies and input
N_STREAM = 3


class Call(NamedTuple):
    """One call of one rank.

    Attributes:
        action, stream: what it does, and where; of a collective the stream of its input, since it is on that of communication.
        gap_s: host work since the end of the call before.
        call_s: time inside the call, waiting left out.
        busy_s: of what it starts; 0 where it starts nothing.
    """

    action: Action
    stream: int = COMPUTE
    gap_s: float = 0.0
    call_s: float = 0.0
    busy_s: float = 0.0


@dataclass(frozen=True, eq=False)
class HostProgram(ByContent):
    """Columns [rank, call].

    Attributes:
        action, stream: as of `Call`.
        gap_s, call_s, busy_s: seconds; of a collective `busy_s` is its own time, without waiting for the last rank.
        start_s: [rank] when the step begins there, seconds on one clock.
    """

    action: Ints
    stream: Ints
    gap_s: Floats
    call_s: Floats
    busy_s: Floats
    start_s: Floats

    @property
    def n_rank(self) -> int:
        """Ranks."""
        return len(self.start_s)

    @property
    def work_s(self) -> Floats:
        """[rank] seconds of all work on the streams, as if nothing overlapped: without host and without waiting."""
        return self.busy_s.sum(axis=1)

    @property
    def without_host(self) -> HostProgram:
        """The same work where hosts take no time and all ranks start together."""
        nothing = np.zeros_like(self.gap_s)
        return replace(self, gap_s=nothing, call_s=nothing, start_s=np.zeros_like(self.start_s))

    @property
    def without_work(self) -> HostProgram:
        """The same hosts where devices take no time."""
        return replace(self, busy_s=np.zeros_like(self.busy_s))

    @property
    def met_busy_s(self) -> Floats:
        """[rank, call] busy seconds where a collective takes on all ranks what it takes on the last, which waits for nobody."""
        shortest_s = np.broadcast_to(self.busy_s.min(axis=0), self.busy_s.shape)
        return np.where(self.action == Action.COLLECTIVE, shortest_s, self.busy_s)

    @property
    def naive_sum_s(self) -> Floats:
        """[rank] host and device one after another: the baseline that ignores that they overlap."""
        return (self.gap_s + self.call_s + self.busy_s).sum(axis=1)


def host_program(ranks: Sequence[Sequence[Call]], start_s: ArrayLike | None = None) -> HostProgram:
    """The program of ranks whose calls are given; all ranks start at 0 where `start_s` is not given.

    Raises:
        DataError: no rank, or ranks with different numbers of collectives.
    """
    if not ranks:
        raise DataError("no rank: a host program needs the calls of at least one")
    parts = [_between_collectives(calls) for calls in ranks]
    if len({len(own) for own in parts}) > 1:
        counts = ", ".join(str(len(own) - 1) for own in parts)
        raise DataError(f"the ranks have {counts} collectives. Give every rank all collectives of one step.")
    widths = [max(len(own[at]) for own in parts) for at in range(len(parts[0]))]
    filled = [[call for own, width in zip(rank, widths, strict=True) for call in _filled(own, width)] for rank in parts]
    columns = [np.array([[getattr(call, name) for call in calls] for calls in filled]) for name in Call._fields]
    action, stream = (column.astype(np.int32) for column in columns[:2])
    gap_s, call_s, busy_s = (column.astype(float) for column in columns[2:])
    start = np.zeros(len(ranks)) if start_s is None else np.asarray(start_s, dtype=float)
    return HostProgram(action, stream, gap_s, call_s, busy_s, start)


def _between_collectives(calls: Sequence[Call]) -> list[list[Call]]:
    """Calls up to each collective, that one included, and those after the last."""
    parts: list[list[Call]] = [[]]
    for call in calls:
        parts[-1].append(call)
        if call.action == Action.COLLECTIVE:
            parts.append([])
    return parts


def _filled(calls: list[Call], width: int) -> list[Call]:
    """`width` calls: idle ones in front, so that a collective stays last."""
    return [Call(Action.NOTHING)] * (width - len(calls)) + calls
