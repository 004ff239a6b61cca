"""Paths: the number of m nodes that are there, and their hourly price, in pieces of time; many worlds.

The same form holds recorded traces (a world is a time at which a job might have begun) and draws of a fitted law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Counts, Floats, Ints
from ..core.content import ByContent
from ..core.errors import DataError


@dataclass(frozen=True, eq=False)
class Paths(ByContent):
    """Availability of the `n_nodes` nodes that a job wants; [piece, world].

    Attributes:
        until_s: end of a piece, seconds after the start of the job; it never falls from piece to piece. A piece of no length in
            which nodes are missing is a loss that is made good at once. After the last piece its state goes on.
        n_up: nodes that are there.
        price: factor on the price of spot hours in that piece.
        n_nodes: wanted by the job.

    Raises:
        DataError: shapes differ, or ends fall.
    """

    until_s: Floats
    n_up: Ints
    price: Floats
    n_nodes: int

    def __post_init__(self) -> None:
        shape = self.until_s.shape
        if len(shape) != 2 or self.n_up.shape != shape or self.price.shape != shape:
            raise DataError(f"paths: until_s {shape}, n_up {self.n_up.shape}, price {self.price.shape} differ")
        if (np.diff(self.until_s, axis=0) < 0.0).any():
            raise DataError("paths: a piece ends before the one in front of it")

    @classmethod
    def always(cls, n_nodes: int, n_worlds: int) -> Paths:
        """All nodes are there at all times: on demand."""
        one = np.ones((1, n_worlds))
        return cls(one * np.inf, np.full((1, n_worlds), n_nodes, np.int32), one, n_nodes)

    @classmethod
    def side_by_side(cls, parts: Sequence[Paths]) -> Paths:
        """Worlds of all parts, which have the same number of nodes, in their order."""
        n = max(len(part.until_s) for part in parts)
        rows = [np.minimum(np.arange(n), len(part.until_s) - 1) for part in parts]
        until_s, n_up, price = (
            np.concatenate([getattr(part, name)[row] for part, row in zip(parts, rows, strict=True)], axis=1)
            for name in ("until_s", "n_up", "price")
        )
        return cls(until_s, n_up, price, parts[0].n_nodes)

    def of_worlds(self, which: Counts | slice) -> Paths:
        """Returns some worlds, in that order."""
        return Paths(self.until_s[:, which], self.n_up[:, which], self.price[:, which], self.n_nodes)

    @property
    def n_worlds(self) -> int:
        """Number of worlds."""
        return self.until_s.shape[1]

    @property
    def usable(self) -> Floats:
        """1.0 where all nodes are there; [piece, world]."""
        return (self.n_up >= self.n_nodes).astype(float)
