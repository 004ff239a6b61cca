"""Spells of a series of states: how long some nodes were there between losses, how long none was, what a loss took.

A loss ends a spell. Where it leaves nodes, the next spell begins with it; where it leaves none, one begins when nodes come back.
Nodes that join a group end nothing. What was there when the watch began, or is there when it ends, lasted longer than was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spells:
    """What one series comes to.

    Attributes:
        up, up_beyond: seconds between losses, and those that are known to be longer, [spell].
        down, down_beyond: the same of none being there, [spell].
        alive, lost: nodes before a loss and nodes lost, [loss].
    """

    up: np.ndarray
    up_beyond: np.ndarray
    down: np.ndarray
    down_beyond: np.ndarray
    alive: np.ndarray
    lost: np.ndarray


def of_states(start_s: np.ndarray, end_s: np.ndarray, state: np.ndarray, whole: tuple[bool, bool]) -> Spells:
    """Spells of states in order.

    Args:
        start_s, end_s: seconds, [piece]; pieces follow each other; a hole between two ends the watch and begins it again.
        state: nodes there, [piece].
        whole: whether the first spell began, and the last one ended, where the series does.
    """
    found: dict[str, list[float]] = {name: [] for name in ("up", "up_beyond", "down", "down_beyond", "alive", "lost")}
    begun, known = start_s[0], whole[0]
    for i in range(1, len(state) + 1):
        last = i == len(state)
        gone = last or start_s[i] > end_s[i - 1] + 0.5
        here, there = int(state[i - 1]), int(state[i]) if not last else 0
        ends = gone or (here == 0) != (there == 0) or there < here
        if not ends:
            continue
        closed = whole[1] if last else not gone
        name = ("up" if here else "down") + ("" if known and closed else "_beyond")
        found[name].append(float(end_s[i - 1] - begun))
        if here and closed and not last:  # what follows the end is not seen
            found["alive"].append(here)
            found["lost"].append(here - there)
        begun, known = (0.0 if last else start_s[i]), not gone
    return Spells(**{name: np.array(values, dtype=float) for name, values in found.items()})


def of_lifetimes(end_s: np.ndarray, duration_s: np.ndarray, limited: np.ndarray, within_s: float) -> Spells:
    """Spells of instances that were started together and watched one by one.

    Args:
        end_s: when each ended, seconds after their start, [instance].
        duration_s: how long each lasted, [instance].
        limited: whether it was stopped by a limit or by its user and not taken away, [instance].
        within_s: what ends so close together is one event.

    Notes:
        A loss of several is one event; the time up to it is counted once, since the last one or since the start.
    """
    order = np.argsort(end_s, kind="stable")
    end_s, duration_s, limited = end_s[order], duration_s[order], limited[order]
    taken = end_s[~limited]
    event = np.cumsum(np.append(True, np.diff(taken) > within_s)) - 1 if len(taken) else np.zeros(0, dtype=int)
    at = np.array([taken[event == n][0] for n in range(event.max() + 1)]) if len(taken) else np.zeros(0)
    lost = np.bincount(event) if len(taken) else np.zeros(0)
    alive = np.array([(end_s >= moment).sum() for moment in at], dtype=float)
    begun = end_s - duration_s
    up = np.diff(np.append(begun.min(), at))
    still = end_s[limited].max() - (at[-1] if len(at) else begun.min()) if limited.any() else 0.0
    empty = np.zeros(0)
    return Spells(up, np.array([still] if still > 0.0 else []), empty, empty, alive, lost.astype(float))
