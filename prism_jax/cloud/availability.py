"""Laws of spot capacity: their interface, Weibull spells, and spells as fitted to records; by name.

Between spells nothing can be had; each loss takes one node or many. A world is one draw of what is not known of the zone, so that
a spread of worlds holds both chance and ignorance. How often nodes are lost while they are used is counted in draws, whatever the
law.

A job runs in a zone that has all its nodes, and moves when they are taken. Zones of one region go up and down together more often
than chance has it. A part of the worlds sees the zones of a region with the same draws, the others with draws of their own; zones
of one law then correlate by that part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gamma, log
from typing import Protocol

import numpy as np

from ..core.arrays import Counts, Flags, Floats
from ..core.content import ByContent
from ..core.errors import Problem, SpecError
from ..core.registry import Registry
from .spot import N_LAWS, STEADY, Paths, PriceLaw, draw as draw_spells, together


class Availability(Protocol):
    """Times at which nodes of one kind can be had in one zone, and losses of several at once.

    Attributes:
        name: in reports.
        source: data of its fit, with dates.
    """

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """Draws the availability of `n_nodes` nodes from a random moment on, at least up to `horizon_s` seconds.

        Notes: the same generator gives the same worlds whatever the policy: plans are compared under common random numbers.
        """
        ...


SETTLES_S = 14 * 86_400.0
"""Assumed time that a zone of unknown state has run before the job begins: two weeks."""


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
        """Returns the same law for nodes that are known to be there, or to be missing, for a known time."""
        return replace(self, is_up=is_up, age_s=age_s)

    def draw(self, n_nodes: int, n_worlds: int, horizon_s: float, rng: np.random.Generator) -> Paths:
        """Draws as `Availability` states."""
        of = rng.permutation(np.arange(n_worlds) % self.law.shape[1])  # every draw as often as any other
        zone = _Zone(self, of, n_nodes, rng)
        settles_s = 0.0 if self.is_up is not None else SETTLES_S
        begins_up = rng.random(n_worlds) < 0.5 if self.is_up is None else np.full(n_worlds, self.is_up)
        until_s, n_up = zone.walked(begins_up, self.age_s, settles_s + horizon_s)
        until_s = np.maximum(until_s - settles_s, 0.0)
        until_s[-1] = np.maximum(until_s[-1], horizon_s)
        return Paths(until_s, n_up.astype(np.int32), self.price.path(until_s, rng), n_nodes)


MOST_PIECES = 20_000


class _Zone:
    """Draws of the next spell, gap and loss of every world."""

    def __init__(self, law: FittedSpells, of: Counts, n_nodes: int, rng: np.random.Generator) -> None:
        self.law, self.n_nodes, self.rng = law.law[:, of], n_nodes, rng
        shift = law.node_slope[:, of] * log(n_nodes / law.n_fitted)
        self.theta = law.theta[:, of] + np.stack([shift, np.zeros_like(shift)], axis=-1)
        self.shares = np.cumsum(law.losses[of], axis=-1) / law.losses[of].sum(axis=-1, keepdims=True)

    def walked(self, begins_up: Flags, age_s: float, horizon_s: float) -> tuple[Floats, Counts]:
        """Ends of pieces in seconds and nodes that are there in them, [piece, world]; all worlds walk at once.

        Args:
            begins_up: whether nodes are there at the start, [world].
            age_s: for how long that has been so.
            horizon_s: up to which pieces are needed; a world that is beyond it stands still.

        Notes: after a loss that leaves nodes, those missing come back after a gap of their own, unless the others are lost
            before.
        """
        alive = np.where(begins_up, self.n_nodes, 0)
        up_s = np.where(begins_up, self._up_s(np.where(begins_up, age_s, 0.0)) - age_s, np.inf)
        down_s = np.where(begins_up, np.inf, self._down_s(np.where(begins_up, 0.0, age_s)) - age_s)
        at_s = np.zeros(len(alive))
        ends, states = [], []
        while len(ends) < MOST_PIECES:
            step = np.minimum(up_s, down_s)
            at_s = np.where(at_s < horizon_s, at_s + step, at_s)
            ends.append(at_s)
            states.append(alive)
            if (at_s >= horizon_s).all():
                break
            alive, up_s, down_s = self._next(alive, up_s - step, down_s - step)
        return np.array(ends), np.array(states)

    def _next(self, alive: Counts, up_s: Floats, down_s: Floats) -> tuple[Counts, Floats, Floats]:
        """State, and its seconds that are left, after the first event has happened."""
        is_loss = up_s <= down_s
        left = np.where(is_loss, self._left(alive), self.n_nodes)
        next_up, next_down = self._up_s(0.0), self._down_s(0.0)
        starts = is_loss | (alive == 0)  # nodes that join a group end nothing and begin nothing
        up_s = np.where(left == 0, np.inf, np.where(starts, next_up, up_s))
        down_s = np.where(left == self.n_nodes, np.inf, np.where(is_loss, next_down, down_s))
        return left, up_s, down_s

    def _up_s(self, age_s: Floats | float) -> Floats:
        """Whole length in seconds of a spell that has reached `age_s`, [world]."""
        return draw_spells(self.law[0], self.theta[0], age_s, self.rng)

    def _down_s(self, age_s: Floats | float) -> Floats:
        """Whole length in seconds of a gap that has reached `age_s`, [world]."""
        return draw_spells(self.law[1], self.theta[1], age_s, self.rng)

    def _left(self, alive: Counts) -> Counts:
        """Nodes that a loss leaves of those alive."""
        which, some = self.rng.random((2, len(alive)))
        several = np.minimum(2 + np.floor(some * np.maximum(alive - 2, 1)), np.maximum(alive - 1, 1)).astype(int)
        lost = np.where(which < self.shares[:, 0], 1, np.where(which < self.shares[:, 1], several, alive))
        return alive - np.minimum(lost, alive)


N_WORLDS = 400
HORIZON_S = 10 * 86_400.0
SEED = 20230215


@lru_cache(maxsize=512)
def loss_rate_s(law: Availability, n_nodes: int) -> float:
    """Losses of at least one of `n_nodes` nodes per second in which all are there.

    Notes: it sets the interval between checkpoints, for which a few percent do not matter.
    """
    paths = law.draw(n_nodes, N_WORLDS, HORIZON_S, np.random.default_rng(SEED))
    up = paths.n_up >= n_nodes
    ends = np.minimum(paths.until_s, HORIZON_S)
    length_s = np.diff(ends, axis=0, prepend=0.0)
    lost = up[:-1] & ~up[1:] & (paths.until_s[:-1] < HORIZON_S)
    up_s = float((length_s * up).sum())
    return float(lost.sum()) / up_s if up_s > 0.0 else 1.0 / HORIZON_S


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
        """Number of zones, and their laws."""
        return f"any of {len(self.zones)} zones, {', '.join(dict.fromkeys(zone.name for zone in self.zones))}"

    @property
    def source(self) -> str:
        """Sources of the zones' laws."""
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


@dataclass(frozen=True)
class WeibullSpells:
    """A pool that has capacity in spells of a Weibull law; shape 1 is exponential.

    Attributes:
        up_mean_s, up_shape: of the spells in which nodes can be had.
        down_mean_s: of the spells between, exponential; 0: what is lost is replaced at once.
        lone_per_node_s: losses of single nodes, per node and second, in addition to the ends of spells, replaced at once.
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
        paths = Paths(np.cumsum(pieces, axis=0, out=pieces), n_up, np.broadcast_to(1.0, pieces.shape), n_nodes)
        lone = self.lone_per_node_s * n_nodes
        return paths if lone == 0.0 else with_breaks(paths, lone, horizon_s, rng)

    def _n_spells(self, horizon_s: float) -> int:
        """Returns a number of spells that hardly a world uses up; in worlds that do, the last state goes on."""
        mean = horizon_s / (self.up_mean_s + self.down_mean_s)
        spread = (2.0 / self.up_shape) ** 0.5 + 1.0
        return min(ceil(mean + 4.0 * spread * mean**0.5) + 4, MOST_PIECES // 2)

    def _up(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        return rng.weibull(self.up_shape, shape) * (self.up_mean_s / gamma(1.0 + 1.0 / self.up_shape))

    def _residual(self, rng: np.random.Generator, n_worlds: int) -> Floats:
        """Draws the rest of a spell at a random moment: a uniform share of a spell drawn by its length."""
        scale = self.up_mean_s / gamma(1.0 + 1.0 / self.up_shape)
        by_length = rng.gamma(1.0 + 1.0 / self.up_shape, 1.0, n_worlds) ** (1.0 / self.up_shape) * scale
        return by_length * rng.random(n_worlds)


def with_breaks(paths: Paths, rate_s: float, horizon_s: float, rng: np.random.Generator) -> Paths:
    """Adds losses at a constant rate that are made good at once."""
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


def _shipped() -> Iterable[Availability]:
    return (
        WeibullSpells(
            up_mean_s=3.97 * 3600.0,
            up_shape=0.75,
            down_mean_s=1.91 * 3600.0,
            name="weibull",
            source="single V100 spot instances on AWS, early 2023: medians over six zones of mean spell and share of time, "
            "middle of the shapes .58 to .90 (skypilot-org/spot-traces); state another law where you know your zone",
        ),
    )


AVAILABILITY: Registry[Availability] = Registry("law of availability", _shipped)
"""Laws that --availability names."""
