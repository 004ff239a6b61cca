"""Spot capacity as it was recorded: a job that begins at some moment of a trace sees what the trace shows after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prism_jax.cloud.spot import Paths
from prism_jax.core.arrays import Floats, Ints
from prism_jax.core.content import ByContent
from prism_jax.core.errors import DataError


@dataclass(frozen=True, eq=False)
class RecordedSpells(ByContent):
    """Replays a trace; the availability of `n_recorded` nodes stands for that of any number up to it.

    Attributes:
        name, source: for reports.
        until_s: end of each piece, seconds after the begin of the trace, rising, [piece].
        n_up: nodes that were there, [piece].
        n_recorded: nodes that were asked for.

    Raises:
        DataError: shapes differ, ends do not rise, or counts are none.
    """

    name: str
    source: str
    until_s: Floats
    n_up: Ints
    n_recorded: int

    def __post_init__(self) -> None:
        if self.until_s.ndim != 1 or self.until_s.shape != self.n_up.shape or not len(self.until_s):
            raise DataError(f"{self.name}: until_s {self.until_s.shape} and n_up {self.n_up.shape} must be as long")
        if not (np.diff(self.until_s, prepend=0.0) > 0.0).all():
            raise DataError(f"{self.name}: the ends of the pieces must rise")
        if (self.n_up < 0).any() or self.n_recorded < 1:
            raise DataError(f"{self.name}: nodes must be counts, of at least one that was asked for")

    @property
    def span_s(self) -> float:
        """Seconds from the begin of the trace to its end."""
        return float(self.until_s[-1])

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """See `Availability`; a world begins at a random moment of the trace, and goes on with its begin at its end."""
        return self.beginning_at(rng.random(n_worlds) * self.span_s, n_nodes, horizon_s)

    def beginning_at(self, start_s: Floats, n_nodes: int, horizon_s: float) -> Paths:
        """Worlds that begin at those moments of the trace, [world].

        Raises:
            DataError: more nodes than were recorded.
        """
        if n_nodes > self.n_recorded:
            raise DataError(
                f"{self.name}: {n_nodes} nodes, but only {self.n_recorded} were asked for when this was recorded. Use a fit."
            )
        n_rounds = int(np.ceil(horizon_s / self.span_s)) + 1
        ends = (self.until_s + self.span_s * np.arange(n_rounds)[:, None]).ravel()
        states = np.tile(self.n_up, n_rounds)
        first = np.searchsorted(ends, start_s, side="right")
        last = np.searchsorted(ends, start_s + horizon_s, side="left")
        n_piece = int((last - first).max()) + 1
        place = np.minimum(first + np.arange(n_piece)[:, None], len(ends) - 1)
        n_up = np.minimum(states[place], n_nodes)
        return Paths(ends[place] - start_s, n_up, np.ones(place.shape), n_nodes)
