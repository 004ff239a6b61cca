"""Spells of a Weibull law between which nothing can be had; each loss takes one node or many."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gamma

import numpy as np

from ..._typing import Floats
from ...errors import Problem, SpecError
from ..paths import Paths

MOST_PIECES = 20_000


@dataclass(frozen=True)
class WeibullSpells:
    """A pool that has capacity in spells of a Weibull law; shape 1 is exponential.

    Attributes:
        up_mean_s, up_shape: of the spells in which nodes can be had.
        down_mean_s: of the spells between, exponential; 0: what is lost is replaced at once.
        lone_per_node_s: losses of single nodes, per node and second, beside the ends of spells, replaced at once.
        name, source: for reports.

    Raises:
        SpecError: a figure is out of range.
    """

    up_mean_s: float
    up_shape: float = 1.0
    down_mean_s: float = 0.0
    lone_per_node_s: float = 0.0
    name: str = "weibull"
    source: str = "stated"

    def __post_init__(self) -> None:
        ranges = {
            "up_mean_s": (1.0, 1e10),
            "up_shape": (0.2, 20.0),
            "down_mean_s": (0.0, 1e10),
            "lone_per_node_s": (0.0, 1.0),
        }
        for field, (low, high) in ranges.items():
            value = getattr(self, field)
            if not low <= value <= high:
                raise SpecError.of(Problem(field, f"{value:g}, but it must be from {low:g} to {high:g}"), self.name)

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """Spells in turn; the first is up with the share of time that the pool is, and has its age behind it."""
        n = self._n_spells(horizon_s)
        up_s = self._up(rng, (n, n_worlds))
        down_s = rng.exponential(1.0, (n, n_worlds)) * self.down_mean_s
        starts_up = rng.random(n_worlds) < self.up_mean_s / (self.up_mean_s + self.down_mean_s)
        up_s[0] = np.where(starts_up, self._residual(rng, n_worlds), 0.0)
        pieces = np.empty((2 * n, n_worlds))
        pieces[0::2], pieces[1::2] = up_s, down_s
        n_up = np.zeros((2 * n, n_worlds), dtype=np.int32)
        n_up[0::2] = n_nodes
        n_up[0] = np.where(starts_up, n_nodes, 0)  # nothing is lost by nodes that were not there
        paths = Paths(np.cumsum(pieces, axis=0), n_up, np.ones_like(pieces), n_nodes)
        lone = self.lone_per_node_s * n_nodes
        return paths if lone == 0.0 else with_breaks(paths, lone, horizon_s, rng)

    def _n_spells(self, horizon_s: float) -> int:
        """So many that hardly a world runs out of them; the last state goes on in those that do."""
        mean = horizon_s / (self.up_mean_s + self.down_mean_s)
        spread = (2.0 / self.up_shape) ** 0.5 + 1.0
        return min(ceil(mean + 4.0 * spread * mean**0.5) + 4, MOST_PIECES // 2)

    def _up(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        return rng.weibull(self.up_shape, shape) * (self.up_mean_s / gamma(1.0 + 1.0 / self.up_shape))

    def _residual(self, rng: np.random.Generator, n_worlds: int) -> Floats:
        """What is left of a spell at a random moment: a uniform share of a spell drawn by its length."""
        scale = self.up_mean_s / gamma(1.0 + 1.0 / self.up_shape)
        by_length = rng.gamma(1.0 + 1.0 / self.up_shape, 1.0, n_worlds) ** (1.0 / self.up_shape) * scale
        return by_length * rng.random(n_worlds)


def with_breaks(paths: Paths, rate_s: float, horizon_s: float, rng: np.random.Generator) -> Paths:
    """The same with losses at a constant rate that are made good at once."""
    n = min(ceil(rate_s * horizon_s + 6.0 * (rate_s * horizon_s) ** 0.5) + 6, MOST_PIECES // 2)
    at_s = np.cumsum(rng.exponential(1.0 / rate_s, (n, paths.n_worlds)), axis=0)
    ends = np.concatenate([paths.until_s, at_s, at_s])
    own = len(paths.until_s)
    order = np.argsort(ends, axis=0, kind="stable")
    merged = np.take_along_axis(ends, order, axis=0)
    before = np.cumsum(order < own, axis=0) - (order < own)
    piece = np.minimum(before, own - 1)
    broken = order >= own + n
    n_up = np.where(broken, 0, np.take_along_axis(paths.n_up, piece, axis=0))
    last = np.full((1, paths.n_worlds), np.inf)
    return Paths(
        np.concatenate([merged, last]),
        np.concatenate([n_up, paths.n_up[-1:]]),
        np.concatenate([np.take_along_axis(paths.price, piece, axis=0), paths.price[-1:]]),
        paths.n_nodes,
    )
