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
from .base import Availability

IN_REGION = 0.4
"""Correlation between zones of one region being up: .25 to .59 in AWS traces of 2022 and 2023 (skypilot-org/spot-traces)."""


@dataclass(frozen=True, eq=False)
class SeveralZones(ByContent):
    """Capacity in any of several zones.

    Attributes:
        zones: of one region.
        shared: share of the worlds in which all zones do the same.

    Raises:
        SpecError: no zone, or a share that is none.
    """

    zones: tuple[Availability, ...]
    shared: float = IN_REGION
    name: str = "several zones"

    def __post_init__(self) -> None:
        if not self.zones:
            raise SpecError.of(Problem("zones", "none is given, but at least one is needed"), self.name)
        if not 0.0 <= self.shared <= 1.0:
            raise SpecError.of(Problem("shared", f"{self.shared:g}, but it must be from 0 to 1"), self.name)

    @property
    def source(self) -> str:
        """Those of the zones."""
        return "; ".join(dict.fromkeys(zone.source for zone in self.zones))

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """See `Availability`; all zones draw alike in the shared worlds."""
        seed = int(rng.integers(2**31))
        shared = rng.random(n_worlds) < self.shared
        alike = [zone.draw(n_nodes, n_worlds, horizon_s, np.random.default_rng(seed)) for zone in self.zones]
        alone = [
            zone.draw(n_nodes, n_worlds, horizon_s, np.random.default_rng([seed, n]))
            for n, zone in enumerate(self.zones)
        ]
        return together([_either(one, other, shared) for one, other in zip(alike, alone, strict=True)])


def together(paths: Sequence[Paths]) -> Paths:
    """A job that stays where it is while its nodes are there, and else moves to the first zone that has them.

    Notes: a move is a piece of no length in which nodes are missing, so that it costs what a loss costs.
    """
    n_nodes, n_worlds = paths[0].n_nodes, paths[0].n_worlds
    ends = np.sort(np.concatenate([one.until_s for one in paths]), axis=0)
    middle = np.concatenate([np.zeros((1, n_worlds)), ends])[:-1]
    piece = [_at(one, middle) for one in paths]
    up = np.stack([np.take_along_axis(one.n_up, at, axis=0) >= n_nodes for one, at in zip(paths, piece, strict=True)])
    price = np.stack([np.take_along_axis(one.price, at, axis=0) for one, at in zip(paths, piece, strict=True)])
    home = np.full((len(ends), n_worlds), -1)
    at = np.full(n_worlds, -1)
    for row in range(len(ends)):
        stays = (at >= 0) & np.take_along_axis(up[:, row], np.maximum(at, 0)[None], axis=0)[0]
        at = np.where(stays, at, np.where(up[:, row].any(axis=0), up[:, row].argmax(axis=0), -1))
        home[row] = at
    before = np.concatenate([np.full((1, n_worlds), -1), home[:-1]])
    moves = (before >= 0) & (home >= 0) & (home != before)
    until_s = np.repeat(ends, 2, axis=0)
    until_s[0::2] = middle
    n_up = np.repeat(np.where(home >= 0, n_nodes, 0), 2, axis=0)
    n_up[0::2] = np.where(moves, 0, np.where(before >= 0, n_nodes, 0))
    paid = np.take_along_axis(price, np.maximum(home, 0)[None], axis=0)[0]
    return Paths(until_s, n_up, np.repeat(paid, 2, axis=0), n_nodes)


def _at(one: Paths, moment: np.ndarray) -> np.ndarray:
    """Number of the piece that runs just after each moment, [row, world]."""
    found = np.empty(moment.shape, dtype=np.int64)
    for world in range(moment.shape[1]):
        found[:, world] = np.searchsorted(one.until_s[:, world], moment[:, world], side="right")
    return np.minimum(found, len(one.until_s) - 1)


def _either(one: Paths, other: Paths, which: np.ndarray) -> Paths:
    """Worlds of `one` where `which`, else of `other`."""
    n = max(len(one.until_s), len(other.until_s))
    parts = []
    for name in ("until_s", "n_up", "price"):
        a, b = (
            np.concatenate([value, np.repeat(value[-1:], n - len(value), axis=0)])
            for value in (getattr(one, name), getattr(other, name))
        )
        parts.append(np.where(which, a, b))
    return Paths(parts[0], parts[1], parts[2], one.n_nodes)
