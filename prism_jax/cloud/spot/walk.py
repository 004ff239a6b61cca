"""Walk of groups of nodes from loss to loss and from gap to gap, all worlds at once."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..._typing import Counts, Floats

MOST_PIECES = 20_000


class Walk(ABC):
    """What is drawn in every world: how long until the next loss, how long until nodes come back, what a loss leaves."""

    @abstractmethod
    def up_s(self, age_s: Floats | float) -> Floats:
        """Whole length in seconds of a spell that has reached `age_s`, [world]."""

    @abstractmethod
    def down_s(self, age_s: Floats | float) -> Floats:
        """Whole length in seconds of a gap that has reached `age_s`, [world]."""

    @abstractmethod
    def left(self, alive: Counts) -> Counts:
        """Nodes that a loss leaves of those alive, [world]."""


def walked(zone: Walk, begins_up: np.ndarray, age_s: float, horizon_s: float, n_nodes: int) -> tuple[Floats, Counts]:
    """Ends of pieces in seconds and nodes that are there in them, [piece, world].

    Args:
        begins_up: whether nodes are there at the start, [world].
        age_s: for how long that has been so.
        horizon_s: up to which pieces are needed; a world that is beyond it stands still.

    Notes: after a loss that leaves nodes, those missing come back after a gap of their own, unless the others are lost before.
    """
    alive = np.where(begins_up, n_nodes, 0)
    up_s = np.where(begins_up, zone.up_s(np.where(begins_up, age_s, 0.0)) - age_s, np.inf)
    down_s = np.where(begins_up, np.inf, zone.down_s(np.where(begins_up, 0.0, age_s)) - age_s)
    at_s = np.zeros(len(alive))
    ends, states = [], []
    while len(ends) < MOST_PIECES:
        step = np.minimum(up_s, down_s)
        at_s = np.where(at_s < horizon_s, at_s + step, at_s)
        ends.append(at_s)
        states.append(alive)
        if (at_s >= horizon_s).all():
            break
        alive, up_s, down_s = _next(zone, alive, up_s - step, down_s - step, n_nodes)
    return np.array(ends), np.array(states)


def _next(zone: Walk, alive: Counts, up_s: Floats, down_s: Floats, n_nodes: int) -> tuple[Counts, Floats, Floats]:
    """State and seconds left of it after what came first has happened."""
    is_loss = up_s <= down_s
    left = np.where(is_loss, zone.left(alive), n_nodes)
    next_up, next_down = zone.up_s(0.0), zone.down_s(0.0)
    starts = is_loss | (alive == 0)  # nodes that join a group end nothing and begin nothing
    up_s = np.where(left == 0, np.inf, np.where(starts, next_up, up_s))
    down_s = np.where(left == n_nodes, np.inf, np.where(is_loss, next_down, down_s))
    return left, up_s, down_s
