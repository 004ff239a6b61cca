"""Spot capacity as fitted to records: spells of any law, losses in groups, every world with parameters of its own.

A world is one draw of what is not known of the zone, so that a spread of worlds holds both chance and ignorance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

import numpy as np

from ..._core.content import ByContent
from ..._typing import Counts, Floats
from ...errors import Problem, SpecError
from ..paths import Paths
from ..spot.price import STEADY, PriceLaw
from ..spot.spell_law import N_LAWS, draw as draw_spells
from ..spot.walk import Walk, walked

SETTLES_S = 14 * 86_400.0
"""A zone of which nothing is known now has run for two weeks before the job begins."""


@dataclass(frozen=True, eq=False)
class FittedSpells(ByContent):
    """Posterior predictive capacity of one zone, seen or not; arrays over draws of its parameters.

    Attributes:
        name, source: for reports.
        law: of spells in which nodes stay, and of gaps; numbers of `spell_law`, [2, draw].
        theta: log median (of mixtures: mean) and log standard deviation of log seconds, [2, draw, 2].
        node_slope: of log medians per e-fold of the nodes of a job over `n_fitted`, [2, draw].
        losses: shares of losses that take one node of several, some, or all, [draw, 3].
        n_fitted: nodes of the groups that `theta` speaks of.
        is_up: whether nodes are there now; None: not known.
        age_s: for how long that has been so.
        price: how the price of spot hours moves, relative to now.

    Raises:
        SpecError: shapes differ, or a figure is out of range.
    """

    name: str
    source: str
    law: Counts
    theta: Floats
    node_slope: Floats
    losses: Floats
    n_fitted: float = 1.0
    is_up: bool | None = None
    age_s: float = 0.0
    price: PriceLaw = STEADY

    def __post_init__(self) -> None:
        n = self.law.shape[-1] if self.law.ndim == 2 else 0
        shapes = (self.law.shape, self.theta.shape, self.node_slope.shape, self.losses.shape)
        if n < 1 or shapes != ((2, n), (2, n, 2), (2, n), (n, 3)):
            raise SpecError.of(
                Problem("law", f"shapes {shapes} of law, theta, node_slope and losses differ"), self.name
            )
        if not (np.isfinite(self.theta).all() and np.isfinite(self.node_slope).all()):
            raise SpecError.of(Problem("theta", "parameters must be finite numbers"), self.name)
        if self.law.min() < 0 or self.law.max() >= N_LAWS or (self.losses < 0.0).any():
            raise SpecError.of(Problem("law", f"laws are 0 to {N_LAWS - 1}, shares of losses at least 0"), self.name)
        if not (0.0 <= self.age_s < 1e10 and self.n_fitted >= 1.0):
            raise SpecError.of(Problem("age_s", f"{self.age_s:g}, but it must be from 0 to 1e10"), self.name)

    def now(self, is_up: bool, age_s: float) -> FittedSpells:
        """The same where it is known that nodes are there, or are not, and for how long."""
        return replace(self, is_up=is_up, age_s=age_s)

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """See `Availability`."""
        of = rng.permutation(np.arange(n_worlds) % self.law.shape[1])  # every draw as often as any other
        zone = _Zone(self, of, n_nodes, rng)
        settles_s = 0.0 if self.is_up is not None else SETTLES_S
        begins_up = rng.random(n_worlds) < 0.5 if self.is_up is None else np.full(n_worlds, self.is_up)
        until_s, n_up = walked(zone, begins_up, self.age_s, settles_s + horizon_s, n_nodes)
        until_s = np.maximum(until_s - settles_s, 0.0)
        until_s[-1] = np.maximum(until_s[-1], horizon_s)
        return Paths(until_s, n_up.astype(np.int32), self.price.path(until_s, rng), n_nodes)


class _Zone(Walk):
    """Draws of the next spell, gap and loss of every world."""

    def __init__(self, law: FittedSpells, of: Counts, n_nodes: int, rng: np.random.Generator) -> None:
        self.law, self.n_nodes, self.rng = law.law[:, of], n_nodes, rng
        shift = law.node_slope[:, of] * log(n_nodes / law.n_fitted)
        self.theta = law.theta[:, of] + np.stack([shift, np.zeros_like(shift)], axis=-1)
        self.shares = np.cumsum(law.losses[of], axis=-1) / law.losses[of].sum(axis=-1, keepdims=True)

    def up_s(self, age_s: Floats | float) -> Floats:
        """Whole length of a spell."""
        return draw_spells(self.law[0], self.theta[0], age_s, self.rng)

    def down_s(self, age_s: Floats | float) -> Floats:
        """Whole length of a gap."""
        return draw_spells(self.law[1], self.theta[1], age_s, self.rng)

    def left(self, alive: Counts) -> Counts:
        """Nodes that a loss leaves of those alive."""
        which, some = self.rng.random((2, len(alive)))
        several = np.minimum(2 + np.floor(some * np.maximum(alive - 2, 1)), np.maximum(alive - 1, 1)).astype(int)
        lost = np.where(which < self.shares[:, 0], 1, np.where(which < self.shares[:, 1], several, alive))
        return alive - np.minimum(lost, alive)
