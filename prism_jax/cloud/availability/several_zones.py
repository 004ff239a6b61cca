"""Several zones: a job runs in one that has all its nodes, and moves when they are taken.

Zones of one region go up and down together more often than chance has it. A part of the worlds sees the zones of a region with
the same draws, the others with draws of their own; zones of one law then correlate by that part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..._core.content import ByContent
from ...errors import Problem, SpecError
from ..paths import Paths
from ..spot.together import together
from .base import Availability

IN_REGION = 0.4
"""Correlation between zones of one region being up: .25 to .59 in AWS traces of 2022 and 2023 (skypilot-org/spot-traces)."""


@dataclass(frozen=True, eq=False)
class SeveralZones(ByContent):
    """Capacity in any of several zones.

    Attributes:
        zones: of one region; a job that has to move takes the first that has all its nodes.
        shared: share of the worlds in which all zones do the same.
        factors: of the spot price of each zone over the price to be paid for, above 0; empty: 1.

    Raises:
        SpecError: no zone, a share that is none, or factors that are not one per zone.
    """

    zones: tuple[Availability, ...]
    shared: float = IN_REGION
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.zones:
            raise SpecError.of(Problem("zones", "none is given, but at least one is needed"), self.name)
        if not 0.0 <= self.shared <= 1.0:
            raise SpecError.of(Problem("shared", f"{self.shared:g}, but it must be from 0 to 1"), self.name)
        if self.factors and (len(self.factors) != len(self.zones) or not all(0.0 < f < 1e9 for f in self.factors)):
            told = ", ".join(f"{factor:g}" for factor in self.factors)
            raise SpecError.of(Problem("factors", f"{told}, but one above 0 per zone is needed"), self.name)

    @property
    def name(self) -> str:
        """How many zones, and their laws."""
        return f"any of {len(self.zones)} zones, {', '.join(dict.fromkeys(zone.name for zone in self.zones))}"

    @property
    def source(self) -> str:
        """Those of the zones."""
        return "; ".join(dict.fromkeys(zone.source for zone in self.zones))

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """See `Availability`; all zones draw alike in the shared worlds."""
        seed, n_alike = int(rng.integers(2**31)), round(self.shared * n_worlds)
        numbers = range(1, len(self.zones) + 1)
        kinds = ((n_alike, [(seed, 0) for _ in numbers]), (n_worlds - n_alike, [(seed, number) for number in numbers]))
        parts = [self._together(n_nodes, n, horizon_s, seeds) for n, seeds in kinds if n]
        return Paths.side_by_side(parts).of_worlds(rng.permutation(n_worlds))

    def _together(self, n_nodes: int, n_worlds: int, horizon_s: float, seeds: Sequence[tuple[int, int]]) -> Paths:
        """Worlds in which every zone draws from a seed of its own."""
        drawn = [
            zone.draw(n_nodes, n_worlds, horizon_s, np.random.default_rng(seed))
            for zone, seed in zip(self.zones, seeds, strict=True)
        ]
        return together(drawn, horizon_s, self.factors)
