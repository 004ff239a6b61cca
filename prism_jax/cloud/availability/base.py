"""Availability: what a law of spot capacity must be able to say."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..paths import Paths


class Availability(Protocol):
    """When nodes of one kind can be had in one zone, and how many go together.

    Attributes:
        name: what reports call it.
        source: what it was fitted to, with dates.
    """

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """What happens to `n_nodes` nodes from a random moment on, at least up to `horizon_s` seconds.

        Notes: the same generator gives the same worlds whatever the policy: plans are compared under common random numbers.
        """
        ...
