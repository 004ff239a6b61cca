"""Makes HostProgram, what the hosts of some ranks do in one step, one call of the driver after another, and their overheads.

Calls of a rank stand in the order of their starts, whichever thread made them: the threads of a training step wait for each
other. Collectives of all ranks stand in the same columns; calls that do nothing fill the gaps.

Overheads by operator are T1 to T5 of the universal multi-GPU performance model (arXiv 2404.12674), from a profile.

    T1  end of an operator to the start of the next        T4  inside a call of the driver that starts work
    T2  start of an operator to its first call             T5  between two calls of one operator
    T3  end of its last call to its end                    (an operator without calls has only T1 and its own time, T2)

Each is the mean of what remains after values beyond 1.5 interquartile ranges of the quartiles are left out, by the name of the
operator (T1: and of the one before), and over all operators for those that were not seen. Of fewer than `FEWEST` all are kept:
long gaps between operators belong to the step (a data loader, Python between two modules), and without them it is 20% too short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.arrays import Floats, Ints
from ..core.content import ByContent
from ..core.errors import DataError


class Action(IntEnum):
    """Effect of a call in addition to taking host time."""

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
        """Program with the same work where hosts take no time and all ranks start together."""
        nothing = np.zeros_like(self.gap_s)
        return replace(self, gap_s=nothing, call_s=nothing, start_s=np.zeros_like(self.start_s))

    @property
    def without_work(self) -> HostProgram:
        """Program with the same hosts where devices take no time."""
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


FENCE = 1.5  # interquartile ranges: Tukey's outliers
FEWEST = 8  # values of which quartiles say something
AFTER = " after "


class Overhead(StrEnum):
    """Kinds of overhead."""

    T1 = "T1"
    T2 = "T2"
    T3 = "T3"
    T4 = "T4"
    T5 = "T5"


ABOUT = {
    Overhead.T1: "between operators",
    Overhead.T2: "in operators before their first call of the driver, or without any",
    Overhead.T3: "in operators after their last call",
    Overhead.T4: "in calls that start work",
    Overhead.T5: "between calls of one operator",
}


class TimedCall(NamedTuple):
    """A call as recorded.

    Attributes:
        call: `gap_s` is not used.
        start_s, end_s: on the host, waiting inside the call included.
    """

    call: Call
    start_s: float
    end_s: float


class Operator(NamedTuple):
    """One operator that no other contains, as recorded.

    Attributes:
        name: as in the profile.
        start_s, end_s: on the host.
        calls: calls of the driver inside, by start.
    """

    name: str
    start_s: float
    end_s: float
    calls: tuple[TimedCall, ...] = ()


@dataclass(frozen=True)
class OverheadTable:
    """Mean overheads.

    Attributes:
        seconds: (kind, name of the operator; "" for all) -> seconds.
        n: how many values each rests on, those left out not counted.
    """

    seconds: Mapping[tuple[Overhead, str], float]
    n: Mapping[tuple[Overhead, str], int]

    def of(self, kind: Overhead, operator: str) -> float:
        """Seconds of that overhead of an operator; of all operators where it was never seen; 0 where nothing was.

        Args:
            operator: its name, for T1 perhaps with the one before: `name after other`.
        """
        bare = operator.partition(AFTER)[0]
        found = (self.seconds.get((kind, name)) for name in (operator, bare, ""))
        return next((value for value in found if value is not None), 0.0)


def without_outliers(values: ArrayLike) -> np.ndarray:
    """Values within `FENCE` interquartile ranges of the quartiles; all of fewer than `FEWEST`."""
    found = np.asarray(values, dtype=float)
    if len(found) < FEWEST:
        return found
    low, high = np.quantile(found, [0.25, 0.75])
    reach = FENCE * (high - low)
    return found[(found >= low - reach) & (found <= high + reach)]


def overheads(ranks: Iterable[Sequence[Operator]]) -> OverheadTable:
    """The table of recorded operators, by rank and in the order of their starts."""
    found: defaultdict[tuple[Overhead, str], list[float]] = defaultdict(list)
    for operators in ranks:
        for one, own in pairwise(operators):
            gap_s = max(own.start_s - one.end_s, 0.0)
            for name in (own.name + AFTER + one.name, own.name, ""):
                found[Overhead.T1, name].append(gap_s)
        for own in operators:
            for kind, value in _of_operator(own):
                found[kind, own.name].append(value)
                found[kind, ""].append(value)
    kept = {key: without_outliers(values) for key, values in found.items()}
    return OverheadTable(
        {key: float(own.mean()) for key, own in kept.items()}, {key: len(own) for key, own in kept.items()}
    )


def _of_operator(own: Operator) -> Iterable[tuple[Overhead, float]]:
    """All of one operator but T1, which it shares with the one before."""
    if not own.calls:
        yield Overhead.T2, own.end_s - own.start_s
        return
    yield Overhead.T2, max(own.calls[0].start_s - own.start_s, 0.0)
    yield Overhead.T3, max(own.end_s - own.calls[-1].end_s, 0.0)
    for timed in own.calls:
        if timed.call.action in STARTS:
            yield Overhead.T4, timed.end_s - timed.start_s
    for one, other in pairwise(own.calls):
        yield Overhead.T5, max(other.start_s - one.end_s, 0.0)


def recorded_calls(operators: Sequence[Operator], start_s: float, end_s: float) -> list[Call]:
    """The calls of a rank with the gaps that were recorded in a step from `start_s` to `end_s`."""
    calls: list[Call] = []
    before = start_s
    for own in operators:
        for timed in own.calls:
            calls.append(timed.call._replace(gap_s=max(timed.start_s - before, 0.0)))
            before = max(before, timed.end_s)
    return [*calls, Call(Action.NOTHING, gap_s=max(end_s - before, 0.0))]
