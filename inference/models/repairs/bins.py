"""Times as counts by interval: what a clock shows in whole minutes lies within half a minute, and one bin holds many events.

Intervals grow by a tenth, so that a log of millions of events costs the likelihood some two hundred terms; their edges lie
between the ticks of the clock. A count of an interval has an exact probability under any law of times, for zeros too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

GROWTH = 0.1  # of the logarithm of the edges: two laws whose shapes differ by 1 % are told apart by thousands of events alone
LONGEST_S = 1e10  # three centuries


@dataclass(frozen=True)
class Times:
    """Counts of times of one system.

    Attributes:
        low, high: edges of the intervals in seconds, [interval].
        count: times inside, [interval].
        beyond: seconds after which nothing more was seen, [censored].
        n_beyond: how many times are known to be longer, [censored].
    """

    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    beyond: np.ndarray
    n_beyond: np.ndarray

    @property
    def log_width(self) -> float:
        """Sum over times of the logarithm of their interval: a log probability less this is a log density in 1/s."""
        return float((self.count * np.log(self.high - self.low)).sum())


def times(seconds: np.ndarray, beyond: np.ndarray, tick_s: float) -> Times:
    """Counts of `seconds`, and of times known to be longer than `beyond`, of a clock that ticks every `tick_s`."""
    edges = _edges(tick_s)
    place = np.searchsorted(edges, seconds, side="right") - 1
    used, count = np.unique(np.clip(place, 0, len(edges) - 2), return_counts=True)
    censored = edges[np.clip(np.searchsorted(edges, beyond, side="right") - 1, 0, len(edges) - 1)]
    after, n_beyond = np.unique(censored[censored > 0.0], return_counts=True)
    return Times(edges[used], edges[used + 1], count.astype(float), after, n_beyond.astype(float))


def _edges(tick_s: float) -> np.ndarray:
    growing = np.exp(np.arange(np.log(tick_s), np.log(LONGEST_S), GROWTH))
    return np.concatenate([[0.0], np.unique((np.floor(growing / tick_s) + 0.5) * tick_s)])


def tick(instants: np.ndarray) -> float:
    """Seconds between the ticks of the clock that instants [event] were read from: 60, or 1."""
    return 60.0 if np.all(np.mod(instants, 60.0) == 0.0) else 1.0
