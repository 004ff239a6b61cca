# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""What the revocation model knows of every group of spot nodes: likelihoods of its spells on grids, and what its losses took.

A group is a GPU in a zone, so many nodes of it asked for at a time, by one way of watching: probes that start a node and end it
at once see whether it could be had ("availability"), nodes that are kept see when they are taken ("preemption").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from prism_jax.cloud.spot.spell_law import MIXTURES

from ..durations import Times, on_grids, stacked, times
from .spells import Series, read_series

QUANTITIES = ("up", "down")
FAMILIES = ("exponential", "weibull", "log-normal", "mixture")
SHAPES = ("weibull", "log-normal", *(f"mixture {n + 1}" for n in range(len(MIXTURES))))
"""Laws with two parameters: of the exponential family one is fixed."""
SHAPES_OF = {"weibull": (0,), "log-normal": (1,), "mixture": tuple(range(2, 2 + len(MIXTURES)))}

CENTRE, WIDTH = 8.5, 2.5  # log seconds: an hour and a half; a factor of 12 either way
SPREAD_CENTRE, SPREAD_WIDTH = 0.5, 0.7  # of the log of spreads of log times: 0.2 to 13
TRAITS = ("log_nodes", "kept")
CLASSES = ("one", "some", "all")


@dataclass(frozen=True)
class RevocationData:
    """Likelihoods of the groups.

    Attributes:
        zones: of every group, [group]; several groups may lie in one.
        gpus, kinds: of every group, [group].
        n_node: asked for at a time, [group].
        trait: log of the nodes, and 1 where nodes are kept and 0 where probes end at once, [group, trait].
        n_spell: spells whose length is known, [quantity, group].
        watched_s: seconds in them and in those that are not known to the end, [quantity, group].
        theta: log median and log spread, [shape, quantity, group, point, 2].
        log_weight: log(likelihood x volume) there, [shape, quantity, group, point].
        median: log median of the exponential law, [quantity, group, place].
        median_log_weight: the same there, [quantity, group, place].
        log_width: what makes log densities in 1/s of log probabilities, [quantity, group].
        losses: events that took one of several nodes, some, or all, [group, class].
        notes: what was assumed.
    """

    AXES: ClassVar[Mapping[str, str]] = {
        "group": "zones gpus kinds n_node",
        "group trait": "trait",
        "2 group": "n_spell watched_s log_width",
        "5 2 group point 2": "theta",
        "5 2 group point": "log_weight",
        "2 group place": "median median_log_weight",
        "group 3": "losses",
    }

    zones: tuple[str, ...]
    gpus: tuple[str, ...]
    kinds: tuple[str, ...]
    n_node: np.ndarray
    trait: np.ndarray
    n_spell: np.ndarray
    watched_s: np.ndarray
    theta: np.ndarray
    log_weight: np.ndarray
    median: np.ndarray
    median_log_weight: np.ndarray
    log_width: np.ndarray
    losses: np.ndarray
    notes: tuple[str, ...] = ()


def from_frame(frame: pd.DataFrame) -> RevocationData:
    """The likelihoods of a checked table.

    Raises:
        DataError: too many groups, rows that overlap, or no spell that ended.
    """
    found, notes = read_series(frame)
    names = tuple(found)
    counted = {name: {quantity: _counted(found[name], quantity) for quantity in QUANTITIES} for name in names}
    times = {quantity: [one[quantity] for one in counted.values()] for quantity in QUANTITIES}
    centre, width = (CENTRE, SPREAD_CENTRE), (WIDTH, SPREAD_WIDTH)
    grids = [stacked([on_grids(times[name], shape, centre, width) for name in QUANTITIES]) for shape in SHAPES]
    lines = stacked([on_grids(times[name], "exponential", (CENTRE,), (WIDTH,)) for name in QUANTITIES])
    return RevocationData(
        zones=tuple(name.zone for name in names),
        gpus=tuple(name.gpu for name in names),
        kinds=tuple(name.kind for name in names),
        n_node=np.array([name.n_node for name in names]),
        trait=np.array([[np.log(name.n_node), float(name.kind == "preemption")] for name in names]),
        n_spell=_by_group(counted, lambda one: one.count.sum()),
        watched_s=_by_group(counted, _seconds),
        theta=np.stack([points for points, _ in grids]),
        log_weight=np.stack([weight for _, weight in grids]),
        median=lines[0][..., 0],
        median_log_weight=lines[1],
        log_width=_by_group(counted, lambda one: one.log_width),
        losses=np.array([_losses(found[name]) for name in names]),
        notes=notes,
    )


def _by_group(counted: Mapping, of) -> np.ndarray:
    return np.array([[float(of(one[quantity])) for one in counted.values()] for quantity in QUANTITIES])


def _seconds(one: Times) -> float:
    return float((one.low + one.high) @ one.count / 2.0 + one.beyond @ one.n_beyond)


def _counted(series: list[Series], quantity: str) -> Times:
    """Times of all series of a group, each with the ticks of its own clock."""
    parts = [
        times(getattr(one.spells, quantity), getattr(one.spells, f"{quantity}_beyond"), one.tick_s) for one in series
    ]
    return Times(*(np.concatenate([getattr(part, name) for part in parts]) for name in Times.__dataclass_fields__))


def _losses(series: list[Series]) -> np.ndarray:
    """Losses of groups of at least two nodes that took one, some, or all."""
    alive = np.concatenate([one.spells.alive for one in series])
    lost = np.concatenate([one.spells.lost for one in series])[alive > 1]
    everything = lost == alive[alive > 1]
    return np.array(
        [((lost == 1) & ~everything).sum(), ((lost > 1) & ~everything).sum(), everything.sum()], dtype=float
    )
