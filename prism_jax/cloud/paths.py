"""Paths: how many of m nodes are there, and what an hour of them costs, in pieces of time; many worlds.

The same form holds recorded traces (a world is a time at which a job might have begun) and draws of a fitted law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._core.content import ByContent
from .._typing import Floats, Ints
from ..errors import DataError


@dataclass(frozen=True, eq=False)
class Paths(ByContent):
    """What happens to `n_nodes` nodes that a job wants; [piece, world].

    Attributes:
        until_s: end of a piece, seconds after the start of the job; it never falls from piece to piece. A piece of no length in
            which nodes are missing is a loss that is made good at once. After the last piece its state goes on.
        n_up: nodes that are there.
        price: factor on the price of spot hours in that piece.
        n_nodes: that the job wants.

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

    @property
    def n_worlds(self) -> int:
        """Worlds."""
        return self.until_s.shape[1]

    @property
    def usable(self) -> Floats:
        """1.0 where all nodes are there; [piece, world]."""
        return (self.n_up >= self.n_nodes).astype(float)
