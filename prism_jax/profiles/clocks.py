"""Offsets between the clocks of ranks, from ops that end together.

The members of one collective end within microseconds of each other, a receive ends with its send. Ranks that share such groups
form a graph; along a spanning tree of it (breadth first from the lowest rank, over the peer with the most shared groups) the
offset of a rank is the median difference of end times, over all steps. Ranks that share no group with others keep their clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ..core.arrays import Floats, Ints
from ..core.robust import MAD_SD
from ..trace.rank_times import median_by

Index = NDArray[np.intp]
DRIFT_AFTER_S = 10.0  # in shorter recordings clocks do not drift measurably
DRIFT_MATCHES = 12  # shared groups in each third of the recording, for a drift to be believed
DRIFT_GAIN = 0.8  # the spread must fall below this share of what it was


@dataclass(frozen=True)
class Meetings:
    """Ends of ops that belong together; one entry per op.

    Attributes:
        rank: index of the rank, from 0 without holes.
        group: number of the group instance; ops of one group in one step have the same.
        end_s: on the rank's own clock.
        side: 0 for a collective, 1 for a receive, -1 for a send.
    """

    rank: Ints
    group: Index
    end_s: Floats
    side: Ints


@dataclass(frozen=True)
class Clocks:
    """Offset and drift of the clock of every rank, against the clock of the lowest rank it shares groups with.

    Attributes:
        offset_s: [rank] ahead of that clock at `origin_s`.
        drift: [rank] seconds gained per second.
        origin_s: on any clock.
        error_s: spread (as of a standard deviation) of single end times over the worst pair of the tree.
        part: [rank] ranks whose clocks were compared, directly or through others, have the same number; 0 has the lowest rank.
    """

    offset_s: Floats
    drift: Floats
    origin_s: float
    error_s: float
    part: Ints

    @property
    def n_part(self) -> int:
        """Sets of ranks whose clocks could not be compared with each other."""
        return int(self.part.max(initial=0)) + 1

    def corrected(self, rank: Ints, time_s: Floats) -> Floats:
        """`time_s`, read on the clocks of `rank`, on the common clock."""
        return time_s - self.offset_s[rank] - self.drift[rank] * (time_s - self.origin_s)


def compare_clocks(meetings: Meetings, n_rank: int) -> Clocks:
    """Clock offsets of `n_rank` ranks."""
    rank, group, end, side = _shared(meetings)
    origin = float(end.min(initial=np.inf)) if len(end) else 0.0
    part = _parts(rank, group, n_rank)
    levels, parent = _tree(rank, group, part, n_rank)
    edge, drift, spread = _edges(rank, group, end, side, parent, origin)
    offset, total_drift = np.zeros(n_rank), np.zeros(n_rank)
    for level in levels[1:]:
        above = parent[level]  # its correction applies to times that the edge has already moved to its clock
        offset[level] = offset[above] + edge[level] * (1.0 - total_drift[above])
        total_drift[level] = total_drift[above] + drift[level] * (1.0 - total_drift[above])
    return Clocks(offset, total_drift, origin, float(spread.max(initial=0.0)), part)


def _shared(meetings: Meetings) -> tuple[Index, Index, Floats, Ints]:
    """Entries of groups with at least two ranks, one per rank and group, sorted by group and rank; groups without holes."""
    order = np.lexsort((meetings.end_s, meetings.rank, meetings.group))
    rank, group = meetings.rank[order].astype(np.intp), meetings.group[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (rank[1:] != rank[:-1]) | (group[1:] != group[:-1])
    order, rank, group = order[first], rank[first], group[first]
    _, group, count = np.unique(group, return_inverse=True, return_counts=True)
    several = count[group] > 1
    _, dense = np.unique(group[several], return_inverse=True)
    kept = order[several]
    return rank[several], dense.astype(np.intp), meetings.end_s[kept].astype(np.float64), meetings.side[kept]


def _parts(rank: Index, group: Index, n_rank: int) -> Ints:
    """[rank] number of the set of ranks that are tied by groups; numbered by their lowest rank."""
    n_group = int(group.max(initial=-1)) + 1
    size = n_rank + n_group
    links = coo_matrix((np.ones(len(rank), dtype=np.int8), (rank, group + n_rank)), shape=(size, size))
    label = connected_components(links, directed=False)[1][:n_rank]
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    place = np.empty(len(first), dtype=np.int32)
    place[np.argsort(first)] = np.arange(len(first))
    return place[inverse]


def _tree(rank: Index, group: Index, part: Ints, n_rank: int) -> tuple[list[Index], Index]:
    """Ranks by distance from the lowest of their part, and the peer through which each is compared."""
    parent = np.full(n_rank, -1, dtype=np.intp)
    place = np.full(n_rank, n_rank, dtype=np.intp)  # in the order in which ranks are reached
    level = np.unique(part, return_index=True)[1].astype(np.intp)
    place[level] = np.arange(len(level))
    n_placed = len(level)
    reached = level  # by place
    levels: list[Index] = []
    nearest = np.full(int(group.max(initial=-1)) + 1, n_rank, dtype=np.intp)  # lowest place in each group
    while len(level):
        levels.append(level)
        np.minimum.at(nearest, group, place[rank])
        open_ = (place[rank] == n_rank) & (nearest[group] < n_rank)
        pair, count = np.unique(rank[open_] * n_rank + nearest[group[open_]], return_counts=True)
        child, at = pair // n_rank, pair % n_rank
        best = np.lexsort((at, -count, child))  # most shared groups first
        level, first = np.unique(child[best], return_index=True)
        parent[level] = reached[at[best][first]]
        place[level] = n_placed + np.arange(len(level))
        n_placed += len(level)
        reached = np.concatenate([reached, level])
    return levels, parent


def _edges(
    rank: Index, group: Index, end: Floats, side: Ints, parent: Index, origin: float
) -> tuple[Floats, Floats, Floats]:
    """[rank] offset and drift against the parent, on the rank's own time from `origin`, and the spread of what they leave.

    Collectives decide where there are any. Where only sends and receives are shared, a receive may end later than its send;
    if there are both directions, the mean of their medians is free of that delay.
    """
    n_rank = len(parent)
    row, peer = _with_parent(rank, group, parent)
    who, difference, time, way = rank[row], end[row] - end[peer], end[row] - origin, side[row]
    collective = np.bincount(who[way == 0], minlength=n_rank) > 0
    use = (way == 0) | ~collective[who]
    who, difference, time, way = who[use], difference[use], time[use], way[use]
    key = who * 3 + way + 1
    medians = median_by(key, difference, 3 * n_rank)
    residual = difference - medians[key]
    edge = _mean_known(medians.reshape(n_rank, 3))
    spread = MAD_SD * _mean_known(median_by(who, np.abs(residual), n_rank)[:, None])
    drift, shift, better = _drift(who, time, residual, spread)
    return edge + shift, drift, better


def _with_parent(rank: Index, group: Index, parent: Index) -> tuple[Index, Index]:
    """Entries whose group holds the parent of their rank too, and the parent's entries; entries are sorted by group, rank."""
    n_rank = len(parent)
    key = group * n_rank + rank
    wanted = np.where(parent[rank] >= 0, group * n_rank + parent[rank], -1)
    found = np.minimum(np.searchsorted(key, wanted), max(len(key) - 1, 0))
    row = np.flatnonzero(key[found] == wanted) if len(key) else np.zeros(0, dtype=np.intp)
    return row, found[row]


def _drift(who: Index, time: Floats, residual: Floats, spread: Floats) -> tuple[Floats, Floats, Floats]:
    """[rank] drift, change of the offset at time 0 that goes with it, spread; zero and as before where no drift is seen.

    The drift is the change of the median residual from the first to the last third of the recording.
    """
    n_rank = len(spread)
    first, last = np.full(n_rank, np.inf), np.full(n_rank, -np.inf)
    np.minimum.at(first, who, time)
    np.maximum.at(last, who, time)
    with np.errstate(invalid="ignore"):
        span = np.maximum(last - first, 1e-9)
    key = who * 3 + np.clip((3 * (time - first[who]) / span[who]).astype(np.intp), 0, 2)
    count = np.bincount(key, minlength=3 * n_rank).reshape(n_rank, 3)
    enough = (count[:, ::2].min(axis=1) >= DRIFT_MATCHES) & (span > DRIFT_AFTER_S)
    level = median_by(key, residual, 3 * n_rank).reshape(n_rank, 3)
    when = median_by(key, time, 3 * n_rank).reshape(n_rank, 3)
    with np.errstate(invalid="ignore", divide="ignore"):
        drift = np.where(enough, (level[:, 2] - level[:, 0]) / (when[:, 2] - when[:, 0]), 0.0)
    left = residual - drift[who] * time
    shift = _mean_known(median_by(who, left, n_rank)[:, None])
    after = MAD_SD * _mean_known(median_by(who, np.abs(left - shift[who]), n_rank)[:, None])
    believed = enough & (after < DRIFT_GAIN * spread)
    return np.where(believed, drift, 0.0), np.where(believed, shift, 0.0), np.where(believed, after, spread)


def _mean_known(values: Floats) -> Floats:
    """Mean over the last axis of what is not NaN; 0 where all is."""
    known = ~np.isnan(values)
    return np.where(known, values, 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)
