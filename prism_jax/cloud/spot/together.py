"""Paths of several zones as one: a job stays in its zone while its nodes are there, and else moves to the first that has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..._typing import Counts, Flags, Floats
from ..paths import Paths

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
    """Where all nodes are in any of several zones.

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
        stay = _next(zones, factors or (1.0,) * len(zones), home, now_s, horizon_s)
        until_s += [stay.begin_s, stay.end_s]
        up += [stay.goes_on & (stay.zone != NOWHERE), stay.zone != NOWHERE]
        price += [stay.price, stay.price]
        home, now_s = stay.zone, stay.end_s
    n_nodes = paths[0].n_nodes
    return Paths(np.stack(until_s), np.where(np.stack(up), n_nodes, 0).astype(np.int32), np.stack(price), n_nodes)


def _next(zones: Sequence[_Zone], factors: Sequence[float], home: Counts, now_s: Floats, horizon_s: float) -> Stay:
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
    """Some values [row, world] at the top, `below` under them; place: row, world, and the row in which each is to be."""
    row, world, to = place
    found = np.full((int(to.max(initial=-1)) + 2, value.shape[1]), below, dtype=value.dtype)
    found[to, world] = value[row, world]
    return found
