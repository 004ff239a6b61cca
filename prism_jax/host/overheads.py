"""Host overheads by operator, from a profile: T1 to T5 of the universal multi-GPU performance model (arXiv 2404.12674).

    T1  end of an operator to the start of the next        T4  inside a call of the driver that starts work
    T2  start of an operator to its first call             T5  between two calls of one operator
    T3  end of its last call to its end                    (an operator without calls has only T1 and its own time, T2)

Each is the mean of what remains after values beyond 1.5 interquartile ranges of the quartiles are left out, by the name of the
operator (T1: and of the one before), and over all operators for those that were not seen. Of fewer than `FEWEST` all are kept:
long gaps between operators belong to the step (a data loader, Python between two modules), and without them it is 20 % too short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .program import STARTS, Action, Call

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
