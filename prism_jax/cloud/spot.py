"""Paths of spot nodes (how many of them are there, and their hourly price, in pieces of time; many worlds), and their draws.

The same form holds recorded traces (a world is a time at which a job might have begun) and draws of a fitted law.

Spells are Weibull, log-normal or two log-normals, from their start or given the age that they have reached. All have the log
median (of the mixture: the mean of log times) and the standard deviation of log times as parameters.

The log of a price returns to its mean, and jumps now and then:

d log p = -return_per_s log p dt + sd sqrt(2 return_per_s) dW + jumps of Normal(0, jump_sd) at jumps_per_s

Of several zones, a job stays in its own while its nodes are there, and else moves to the first that has
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from ..core.arrays import Counts, Flags, Floats, Ints
from ..core.content import ByContent
from ..core.errors import DataError, Problem, SpecError


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


MIXTURES = ((0.5, 1.6), (0.3, 1.8), (0.7, 1.8))
"""Shapes of two log-normals: share of the short spells, and how far apart the two are, in standard deviations of all."""
WEIBULL, LOG_NORMAL = 0, 1
"""Numbers of laws; 2 and above are `MIXTURES`."""
N_LAWS = 2 + len(MIXTURES)
LONGEST_LOG_S = 22.0  # a century
EULER = np.pi / np.sqrt(6.0)  # standard deviation of log times of shape 1
LOG_LOG_2 = float(np.log(np.log(2.0)))


def components(theta: Floats, share: float, apart: float) -> tuple[Floats, Floats, Floats]:
    """Means of the short and of the long part, and the standard deviation inside each, of log times; each [...].

    Args:
        theta: mean of log seconds, and log of their standard deviation, [..., 2].
    """
    sd = np.exp(theta[..., 1])
    low = theta[..., 0] - (1.0 - share) * apart * sd
    return low, low + apart * sd, sd * np.sqrt(1.0 - share * (1.0 - share) * apart**2)


def draw(law: Counts, theta: Floats, age_s: Floats | float, rng: np.random.Generator) -> Floats:
    """Whole lengths in seconds of spells that have reached `age_s`, [...].

    Args:
        law: `WEIBULL`, `LOG_NORMAL` or a mixture, [...].
        theta: log median (mean of log seconds) and log standard deviation of log seconds, [..., 2].
        age_s: broadcasts against [...]; 0: a new spell.

    Notes:
        Two uniform numbers are used per spell whatever its law, so that laws are compared under the same draws.
    """
    first, second = rng.random((2, *np.shape(law)))
    with np.errstate(divide="ignore"):
        log_age = np.log(np.broadcast_to(np.asarray(age_s, dtype=float), np.shape(law)))
    log_s = np.where(law == WEIBULL, _weibull(theta, log_age, second), 0.0)
    log_s = np.where(law == LOG_NORMAL, _normal(theta[..., 0], np.exp(theta[..., 1]), log_age, second), log_s)
    for number, (share, apart) in enumerate(MIXTURES):
        if (law == 2 + number).any():
            low, high, inner = components(theta, share, apart)
            short = share * ndtr((low - log_age) / inner)
            long = (1.0 - share) * ndtr((high - log_age) / inner)
            is_short = first * (short + long) < short
            log_s = np.where(law == 2 + number, _normal(np.where(is_short, low, high), inner, log_age, second), log_s)
    return np.exp(np.minimum(np.maximum(log_s, log_age), LONGEST_LOG_S))


def _log_hazard(theta: Floats, log_s: Floats) -> Floats:
    """Log of the cumulated hazard of the Weibull law."""
    return LOG_LOG_2 + EULER / np.exp(theta[..., 1]) * (log_s - theta[..., 0])


def _weibull(theta: Floats, log_age: Floats, uniform: Floats) -> Floats:
    with np.errstate(over="ignore"):
        reached = np.exp(np.minimum(_log_hazard(theta, log_age), 700.0))
    log_hazard = np.log(reached - np.log1p(-uniform) + 1e-300)
    return theta[..., 0] + (log_hazard - LOG_LOG_2) * np.exp(theta[..., 1]) / EULER


def _normal(mean: Floats, sd: Floats, log_age: Floats, uniform: Floats) -> Floats:
    """Draws log lengths beyond an age from a normal law, accurately in the upper tail, where spells that have lasted are."""
    beyond = ndtr((mean - log_age) / sd)
    return mean - sd * ndtri(np.clip(beyond * (1.0 - uniform), 1e-300, 1.0 - 1e-16))


@dataclass(frozen=True)
class PriceLaw:
    """Log price as an autoregression with jumps, relative to its mean.

    Attributes:
        sd: standard deviation of log price in the long run, jumps aside.
        return_per_s: rate at which it returns to its mean.
        jumps_per_s, jump_sd: of jumps of log price.
        start: log price over its mean now.

    Raises:
        SpecError: a figure is negative or not finite.
    """

    sd: float = 0.0
    return_per_s: float = 0.0
    jumps_per_s: float = 0.0
    jump_sd: float = 0.0
    start: float = 0.0

    def __post_init__(self) -> None:
        for name in ("sd", "return_per_s", "jumps_per_s", "jump_sd"):
            if not 0.0 <= getattr(self, name) < 100.0:
                raise SpecError.of(Problem(name, f"{getattr(self, name):g}, but it must be from 0 to 100"), "price")

    def path(self, until_s: Floats, rng: np.random.Generator) -> Floats:
        """Price over that of now in the pieces that end at `until_s`, at their starts, [piece, world]; 1 in the first."""
        if self.sd == 0.0 and self.jumps_per_s == 0.0 and self.start == 0.0:
            return np.ones(until_s.shape)
        steps = np.diff(np.minimum(until_s, 1e10), axis=0, prepend=0.0)
        keep = np.exp(-self.return_per_s * steps)
        noise = self.sd * np.sqrt(-np.expm1(-2.0 * self.return_per_s * steps)) * rng.standard_normal(steps.shape)
        jumps = np.sqrt(rng.poisson(np.minimum(self.jumps_per_s * steps, 1e6))) * self.jump_sd
        noise = noise + jumps * rng.standard_normal(steps.shape)
        at = np.full(until_s.shape[1], self.start)
        out = np.empty(until_s.shape)
        for piece in range(len(steps)):
            out[piece] = at
            at = keep[piece] * at + noise[piece]
        return np.exp(out - self.start)


STEADY = PriceLaw()
"""A price that does not move."""


NOWHERE = -1


class Stay(NamedTuple):
    """One turn of all worlds: they wait, then nodes are there; [world].

    Attributes:
        zone: `NOWHERE`: none has nodes before the horizon.
        begin_s, end_s: of the time in which nodes are there.
        price: factor on the price of spot hours.
        goes_on: whether the job has lost no nodes since the turn before.
    """

    zone: Counts
    begin_s: Floats
    end_s: Floats
    price: Floats
    goes_on: Flags


def together(paths: Sequence[Paths], horizon_s: float, factors: Sequence[float] = ()) -> Paths:
    """Returns the paths of a job that needs all of its nodes in any one of several zones.

    Args:
        paths: one per zone, of as many nodes and worlds; the first that has all nodes is taken.
        horizon_s: seconds, above 0; from then on nothing changes.
        factors: of the price of each zone over that to be paid for; empty: 1.

    Notes: a move is a piece of no length in which nodes are missing, so that it costs what a loss costs.
    """
    zones = [_Zone(one, horizon_s) for one in paths]
    home, now_s = np.full(paths[0].n_worlds, NOWHERE), np.zeros(paths[0].n_worlds)
    until_s, up, price = [], [], []
    while not until_s or (now_s < horizon_s).any():
        stay = _together_next(zones, factors or (1.0,) * len(zones), home, now_s, horizon_s)
        until_s += [stay.begin_s, stay.end_s]
        up += [stay.goes_on & (stay.zone != NOWHERE), stay.zone != NOWHERE]
        price += [stay.price, stay.price]
        home, now_s = stay.zone, stay.end_s
    n_nodes = paths[0].n_nodes
    return Paths(np.stack(until_s), np.where(np.stack(up), n_nodes, 0).astype(np.int32), np.stack(price), n_nodes)


def _together_next(
    zones: Sequence[_Zone], factors: Sequence[float], home: Counts, now_s: Floats, horizon_s: float
) -> Stay:
    """The next time in which nodes are there: at home, else in the first zone that has them, else in the next that will."""
    world = np.arange(len(home))
    piece = np.stack([zone.at(now_s) for zone in zones])
    begin_s, end_s, price, joined = (
        np.stack([getattr(zone, name)[own, world] for zone, own in zip(zones, piece, strict=True)])
        for name in ("begin_s", "end_s", "price", "joined")
    )
    begin_s = np.maximum(begin_s, now_s)
    stays = (home != NOWHERE) & (begin_s[home, world] == now_s)
    zone = np.where(stays, home, begin_s.argmin(axis=0))
    begins_s = begin_s[zone, world]
    goes_on = (begins_s == now_s) & ((home == NOWHERE) | (stays & joined[zone, world]))
    over = now_s >= horizon_s  # the last state goes on
    none = np.where(over, home == NOWHERE, begins_s >= horizon_s)
    zone = np.where(none, NOWHERE, np.where(over, home, zone))
    paid = np.where(none, 1.0, price[zone, world] * np.asarray(factors)[zone])
    begins_s, ends_s = (
        np.minimum(moment, horizon_s) for moment in (begins_s, np.where(none, np.inf, end_s[zone, world]))
    )
    return Stay(zone, begins_s, ends_s, paid, goes_on | over)


class _Zone:
    """Pieces of one zone in which all nodes are there; [piece, world], below them one beyond the horizon.

    Attributes:
        begin_s, end_s, price: of the piece.
        joined: whether nodes were there until it begins.
    """

    def __init__(self, paths: Paths, horizon_s: float) -> None:
        self._span_s = 4.0 * horizon_s
        n = min(int((paths.until_s < horizon_s).sum(axis=0).max()) + 1, len(paths.until_s))
        until_s = np.minimum(paths.until_s[:n], horizon_s)
        until_s[-1] = horizon_s
        begin_s = np.concatenate([np.zeros((1, paths.n_worlds)), until_s[:-1]])
        up = paths.n_up[:n] >= paths.n_nodes
        joined = np.concatenate([np.zeros((1, paths.n_worlds), dtype=bool), up[:-1]])
        kept = up & (until_s > begin_s)
        row, world = np.nonzero(kept)
        place = row, world, (np.cumsum(kept, axis=0) - 1)[kept]
        self.begin_s = _squeezed(begin_s, place, 2.0 * horizon_s)
        self.end_s = _squeezed(until_s, place, 3.0 * horizon_s)
        self.price = _squeezed(paths.price[:n], place, 1.0)
        self.joined = _squeezed(joined, place, False)
        self._ends = (self.end_s.T + self._span_s * np.arange(paths.n_worlds)[:, None]).ravel()

    def at(self, now_s: Floats) -> Counts:
        """Number of the piece that runs, or of the next, [world]."""
        world = np.arange(len(now_s))
        found = np.searchsorted(self._ends, now_s + self._span_s * world, side="right")
        return found - world * len(self.end_s)


def _squeezed(value: np.ndarray, place: tuple[Counts, Counts, Counts], below: float) -> np.ndarray:
    """Places some values [row, world] at the top and `below` under them; place: row, world, and the row in which each is to
    be.
    """
    row, world, to = place
    found = np.full((int(to.max(initial=-1)) + 2, value.shape[1]), below, dtype=value.dtype)
    found[to, world] = value[row, world]
    return found
