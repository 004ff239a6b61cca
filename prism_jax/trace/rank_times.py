"""Defines RankTimes, what every rank of a step log took, and how long the named parts of its steps were.

A step ends when its slowest rank does. Which rank that was, and what it did meanwhile (loading data, writing a checkpoint), is
what a table of one row per step and rank tells and one of steps alone does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.readable import first_few
from ..core.robust import robust_sd

SLOW_RANK_SD, SLOW_RANK_SHARE = 5.0, 0.02
FEWEST_RANKS = 4
MOST_RANGES = 6  # in a sentence


@dataclass(frozen=True)
class RankTimes:
    """One value per row of a table of steps and ranks; rows are sorted by entry, then rank.

    Attributes:
        names: of the ranks, in their natural order ("9" before "10"); one empty name where rows name none.
        entry: index of the step in the log [row].
        rank: index into `names` [row].
        step_s: seconds of the step on that rank [row].
        parts_s: name of a column -> seconds of that part of the step [row]; NaN where the table has none.
    """

    names: tuple[str, ...]
    entry: NDArray[np.int64]
    rank: NDArray[np.int64]
    step_s: Floats
    parts_s: Mapping[str, Floats]

    def choose(self, entries: NDArray) -> RankTimes:
        """The rows of some entries of the log (indices or flags), which are numbered anew in that order."""
        kept = np.flatnonzero(entries) if entries.dtype == bool else np.asarray(entries, np.int64)
        n = int(self.entry.max(initial=-1)) + 1
        starts, ends = (np.searchsorted(self.entry, np.arange(n), side=side) for side in ("left", "right"))
        sizes = (ends - starts)[kept]
        offset = np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = np.repeat(starts[kept], sizes) + np.arange(int(sizes.sum())) - offset
        return RankTimes(
            self.names,
            np.repeat(np.arange(len(kept)), sizes),
            self.rank[rows],
            self.step_s[rows],
            {name: values[rows] for name, values in self.parts_s.items()},
        )

    def quantities(self) -> dict[str, Floats]:
        """The seconds of the step and of its parts, by name [row]; the step under an empty name."""
        return {"": self.step_s, **self.parts_s}


def natural_order(names: Sequence[str]) -> list[str]:
    """Names with their numbers in the order of numbers: "gpu9" before "gpu10"; the same for any order of `names`."""
    return sorted(set(names), key=_natural)


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    parts: list[tuple[int, int, str]] = []
    digits, text = "", ""
    for char in f"{name}\0":
        if char.isascii() and char.isdecimal():
            digits += char
            continue
        if digits:
            parts += [(1, 0, text)] if text else []
            parts.append((0, int(digits[:30]), ""))
            digits, text = "", ""
        text += char
    parts.append((1, 0, text))
    return parts, name


def in_ranges(names: Sequence[str], all_names: Sequence[str]) -> str:
    """Joins names of ranks as "ranks 3, 12-15": those that follow each other among `all_names` as a range."""
    place = {name: i for i, name in enumerate(all_names)}
    runs: list[list[int]] = []
    for i in sorted(place[name] for name in names):
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    words = [all_names[run[0]] if len(run) == 1 else f"{all_names[run[0]]}-{all_names[run[-1]]}" for run in runs]
    return f"rank{'' if len(names) == 1 else 's'} {first_few(words, MOST_RANGES)}"


@dataclass(frozen=True)
class RankExcess:
    """A rank that is longer than the others in ordinary steps.

    Attributes:
        part: column of the log; empty for the step.
        rank: its name.
        excess: by how much its median over steps exceeds that of the middle rank, a share.
        sigma: the same in robust standard deviations of ranks.
    """

    part: str
    rank: str
    excess: float
    sigma: float


def slow_ranks(ranks: RankTimes) -> tuple[RankExcess, ...]:
    """Ranks beyond `SLOW_RANK_SD` robust standard deviations and `SLOW_RANK_SHARE` of the step, slowest first.

    A rank is compared with the others of the same step, so that steps may differ as they like.
    """
    n_rank = len(ranks.names)
    if n_rank < FEWEST_RANKS:
        return ()
    found: list[RankExcess] = []
    step_s = float(np.median(ranks.step_s))
    for name, seconds in ranks.quantities().items():
        rows = np.isfinite(seconds)
        of_step = median_by(ranks.entry[rows], seconds[rows], int(ranks.entry.max()) + 1)
        over = median_by(ranks.rank[rows], seconds[rows] - of_step[ranks.entry[rows]], n_rank)
        middle = float(np.nanmedian(over))
        sd = robust_sd(over[np.isfinite(over)], middle)
        limit = max(SLOW_RANK_SD * sd, SLOW_RANK_SHARE * step_s)
        found += [
            RankExcess(
                name, ranks.names[i], float(over[i] - middle) / step_s, float((over[i] - middle) / max(sd, 1e-9))
            )
            for i in np.flatnonzero(over - middle > limit).tolist()
        ]
    return tuple(sorted(found, key=lambda one: -one.excess))


def earlier(keys: Sequence[NDArray], *by: NDArray) -> NDArray[np.int64]:
    """Counts the entries with the same keys before each [entry], in the order of `by`, whose first array decides.

    Args:
        keys: arrays [entry]; entries are alike where all of them are.
    """
    order = np.lexsort((*reversed(by), *keys))
    new = np.ones(len(order), bool)
    new[1:] = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    place = np.arange(len(order))
    count = np.empty(len(order), np.int64)
    count[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return count


def median_by(group: NDArray, values: Floats, n: int) -> Floats:
    """Returns the median of the values of every group; NaN for one without [group]."""
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=n)
    ends = np.cumsum(counts)
    ordered = values[order]
    middle = np.full(n, np.nan)
    there = counts > 0
    low, high = (ends - counts + (counts - 1) // 2)[there], (ends - counts + counts // 2)[there]
    middle[there] = 0.5 * (ordered[low] + ordered[high])
    return middle
