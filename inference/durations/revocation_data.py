"""Tables of spot nodes, the spells in them, and likelihoods of these on grids, by group.

A group is a GPU in a zone, so many nodes of it asked for at a time, by one way of watching: probes that start a node and end it
at once see whether it could be had ("availability"), nodes that are kept see when they are taken ("preemption").

A row of a trace is a piece of constant availability; without the columns `trace` and `available` every row is the life of an
instance, and those of one zone that started together are one group. A loss ends a spell. Where it leaves nodes, the next spell
begins with it; where it leaves none, one begins when nodes come back. Nodes that join a group end nothing. What was there when
the watch began, or is there when it ends, lasted longer than was seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import pandas as pd

from prism_jax.cloud.spot import MIXTURES
from prism_jax.core.errors import DataError

from ..data.checks import refuse_row
from ..data.columns import ModelColumn
from .durations import Times, on_grids, stacked, times

# pyright: reportArgumentType=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)


LONG_S = 1e9  # thirty years
KINDS = ("availability", "preemption")
COLUMNS = (
    ModelColumn("zone", ("availability_zone", "az"), required=True, text=True, strict=True),
    ModelColumn("gpu", ("accelerator", "gpu_type"), text=True, strict=True),
    ModelColumn("kind", ("trace_kind",), text=True, strict=True, choices=KINDS),
    ModelColumn("trace", ("trace_id", "series"), text=True, strict=True),
    ModelColumn("nodes", ("requested_nodes", "n_nodes"), positive=True, strict=True),
    ModelColumn("start_s", ("begin_s", "t_s"), required=True, strict=True, least=0.0, longest_s=LONG_S),
    ModelColumn("duration_s", ("lifetime_s", "lifetime"), required=True, strict=True, positive=True, longest_s=LONG_S),
    ModelColumn("available", ("n_available", "available_nodes"), strict=True, least=0.0),
    ModelColumn("censored_left", ("left_censored",), strict=True, least=0.0),
    ModelColumn("censored_right", ("right_censored", "ended_at_24h_limit", "ended_at_limit"), strict=True, least=0.0),
    ModelColumn("gap_s", ("probe_interval_s",), strict=True, positive=True),
)
MOST_GROUPS = 500
MOST_NODES = 100_000
BULK_S = 15.0
"""Lives that end within fifteen seconds are one event: taken, or stopped, by one decision."""


class SpellGroup(NamedTuple):
    """Key of spells that are taken for alike."""

    zone: str
    gpu: str
    n_node: float
    kind: str


@dataclass(frozen=True)
class Series:
    """One watch of one group: its spells, and how finely they were timed."""

    spells: SeriesSpells
    tick_s: float


def read_series(frame: pd.DataFrame) -> tuple[dict[SpellGroup, list[Series]], tuple[str, ...]]:
    """Series by group, in the order of their names, and what was assumed.

    Raises:
        DataError: rows of one trace overlap or differ in their group, more nodes than were asked for, flags that are no flags,
            too many groups, or nothing that ended.
    """
    table, notes = _filled(frame)
    refuse_row(table, table["duration_s"] > LONG_S, "duration_s is longer than thirty years. Is the unit right?")
    for flag in ("censored_left", "censored_right"):
        refuse_row(table, ~table[flag].isin([0.0, 1.0]), f"{flag} must be 0 or 1")
    for count in ("nodes", "available"):
        refuse_row(table, table[count] != np.floor(table[count]), f"{count} must be a whole number")
    refuse_row(table, table["nodes"] > MOST_NODES, f"nodes must be at most {MOST_NODES:,}")
    refuse_row(
        table, table["available"] > table["nodes"], "available is more than nodes, the number that was asked for"
    )
    found: dict[SpellGroup, list[Series]] = {}
    lives = _are_lives(frame)
    key = ["zone", "gpu", "nodes", "kind", "start_s" if lives else "trace"]
    for name, rows in table.groupby(key, sort=True):
        found.setdefault(SpellGroup(str(name[0]), str(name[1]), float(name[2]), str(name[3])), []).append(
            _of_lives(rows) if lives else _of_trace(rows)
        )
    if len(found) > MOST_GROUPS:
        raise DataError(
            f"column zone: more than {MOST_GROUPS:,} groups of zone, gpu, nodes and kind. Is it the column of nodes?"
        )
    if not any(len(one.spells.up) for series in found.values() for one in series):
        raise DataError(
            "column duration_s: no spell of availability ended while it was watched, so that nothing can be fitted"
        )
    return found, notes


def _are_lives(frame: pd.DataFrame) -> bool:
    return "trace" not in frame and "available" not in frame


def _filled(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The table with what is not given at its meaning, and notes that say so."""
    notes = []
    table = frame.copy()
    for name, value in (("gpu", ""), ("kind", KINDS[0]), ("trace", "")):
        table[name] = (table[name].fillna(value) if name in table else pd.Series(value, index=table.index)).astype(str)
    table["kind"] = table["kind"].str.lower()
    cut = 0.0 if _are_lives(frame) else 1.0  # a trace begins and ends amid a spell unless it says otherwise
    for name, value in (("nodes", 1.0), ("censored_left", cut), ("censored_right", cut)):
        table[name] = table[name].fillna(value) if name in table else value
    if "available" not in table:
        table["available"] = table["nodes"]
        notes.append("no column available: every row is a time in which nodes were there")
    if "gap_s" not in table:
        table["gap_s"] = np.nan
    missing = table["available"].isna()
    refuse_row(table, missing, "available is missing. Fill it in, or leave the column out.")
    if "kind" not in frame:
        notes.append("no column kind: taken for probes (availability), not for nodes that were kept (preemption)")
    return table, tuple(notes)


def _of_trace(rows: pd.DataFrame) -> Series:
    rows = rows.sort_values("start_s", kind="stable")
    start = rows["start_s"].to_numpy(dtype=float)
    end = start + rows["duration_s"].to_numpy(dtype=float)
    tick = _tick(rows)
    overlap = np.append(False, start[1:] < end[:-1] - 0.5)
    refuse_row(
        rows, overlap, "starts before the row of the same trace in front of it ends. Correct start_s or duration_s."
    )
    whole = rows["censored_left"].iloc[0] == 0.0, rows["censored_right"].iloc[-1] == 0.0
    return Series(of_states(start, end, rows["available"].to_numpy(dtype=float), whole), tick)


def _of_lives(rows: pd.DataFrame) -> Series:
    duration = rows["duration_s"].to_numpy(dtype=float)
    return Series(of_lifetimes(duration, duration, rows["censored_right"].to_numpy() == 1.0, BULK_S), _tick(rows))


def _tick(rows: pd.DataFrame) -> float:
    """Seconds between looks: as stated, else the shortest piece of a trace, at most an hour."""
    stated = rows["gap_s"].dropna()
    return float(max(min(stated.iloc[0] if len(stated) else rows["duration_s"].min(), 3600.0), 1.0))


@dataclass(frozen=True)
class SeriesSpells:
    """Spells and losses of one series.

    Attributes:
        up, up_beyond: seconds between losses, and those that are known to be longer, [spell].
        down, down_beyond: seconds without any node there, and those known to be longer, [spell].
        alive, lost: nodes before a loss and nodes lost, [loss].
    """

    up: np.ndarray
    up_beyond: np.ndarray
    down: np.ndarray
    down_beyond: np.ndarray
    alive: np.ndarray
    lost: np.ndarray


def of_states(start_s: np.ndarray, end_s: np.ndarray, state: np.ndarray, whole: tuple[bool, bool]) -> SeriesSpells:
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
    return SeriesSpells(**{name: np.array(values, dtype=float) for name, values in found.items()})


def of_lifetimes(end_s: np.ndarray, duration_s: np.ndarray, limited: np.ndarray, within_s: float) -> SeriesSpells:
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
    return SeriesSpells(up, np.array([still] if still > 0.0 else []), empty, empty, alive, lost.astype(float))


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

    zones: Annotated[tuple[str, ...], "group"]
    gpus: Annotated[tuple[str, ...], "group"]
    kinds: Annotated[tuple[str, ...], "group"]
    n_node: Annotated[np.ndarray, "group"]
    trait: Annotated[np.ndarray, "group trait"]
    n_spell: Annotated[np.ndarray, "2 group"]
    watched_s: Annotated[np.ndarray, "2 group"]
    theta: Annotated[np.ndarray, "5 2 group point 2"]
    log_weight: Annotated[np.ndarray, "5 2 group point"]
    median: Annotated[np.ndarray, "2 group place"]
    median_log_weight: Annotated[np.ndarray, "2 group place"]
    log_width: Annotated[np.ndarray, "2 group"]
    losses: Annotated[np.ndarray, "group 3"]
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
