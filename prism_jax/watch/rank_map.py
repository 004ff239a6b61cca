"""Compares the ranks of a recording step by step, which tells whether a node is slow: `RankMap`.

A step of a job that waits for all ranks is as long on each, so that what tells them apart is their own work: a column of the log
(forward, data loading), or the compute of a trace, where waiting is no work. A rank is compared with those that do the same work
in the same step: all ranks of a log, those of the same pipeline stage of a trace. A stage that one rank alone has is compared
with itself over the steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.readable import evenly, percent, some
from ..trace.rank_times import SLOW_RANK_SHARE, RankTimes, natural_order, slow_ranks
from ..trace.step_log import StepLog
from ..trace.trace import Trace
from .phases import compute_s

OWN = "its own usual one"  # what a rank is compared with where no other has the same work
COMPUTE = "compute"  # the quantity of a trace
MOST_SLOW, MOST_OTHERS, MOST_COLUMNS, MOST_NAMED = 32, 8, 200, 5
LASTING, FEWEST_STEPS = 0.8, 10  # share of the steps in which a slow one of few ranks is the longest, and of how many


@dataclass(frozen=True)
class RankRow:
    """One rank, over all steps.

    Attributes:
        rank: its name.
        median_s: of its seconds.
        excess: median over steps of how much longer it is than the middle one of those with the same work, a share of that.
        slowest: share of the steps in which no other with the same work was longer.
    """

    rank: str
    median_s: float
    excess: float
    slowest: float


class PhaseSteps(NamedTuple):
    """Steps from one to another.

    Attributes:
        first, end: numbers of the first step and of the first one after it; None: it lasts.
    """

    first: int
    end: int | None

    def holds(self, steps: NDArray) -> NDArray[np.bool_]:
        """[step] whether a step belongs to it."""
        inside = steps >= self.first
        return inside if self.end is None else inside & (steps < self.end)

    @property
    def words(self) -> str:
        """Words: " since step 60"."""
        return f" since step {self.first:,}" if self.end is None else f" from step {self.first:,} to {self.end:,}"


@dataclass(frozen=True)
class RankMap:
    """Ranks by steps.

    Attributes:
        quantity: that is compared; empty: the step.
        quantities: all that the recording has.
        rows: all ranks, the slowest first.
        shown: names of the ranks in `cells`, in their natural order.
        steps: [column] number of its first step.
        last_step: number of the last one.
        n_per_column: steps of a column.
        cells: [shown rank, column] mean excess, a share; NaN where nothing was recorded.
        slow: names of the ranks that stand out, slowest first.
        peers: what a rank is compared with, in words.
        when: of which steps `rows` and `slow` are, in words; empty: of all.
    """

    quantity: str
    quantities: tuple[str, ...]
    rows: tuple[RankRow, ...]
    shown: tuple[str, ...]
    steps: tuple[int, ...]
    last_step: int
    n_per_column: int
    cells: Floats
    slow: tuple[str, ...]
    peers: str
    when: str = ""

    @property
    def verdict(self) -> str:
        """Whether a rank is slow, in a sentence."""
        what = self.quantity or "step"
        if self.peers == OWN:
            return "No two ranks have the same work: each is compared with itself over the steps, not with the others."
        if not self.slow:
            return f"No rank is slow{self.when}: the {what} of each is close to {self.peers}."
        row = next(row for row in self.rows if row.rank == self.slow[0])
        longest = f"the longest in {row.slowest:.0%} of the steps"
        return (
            f"Rank {row.rank} is slow{self.when}: its {what} is {percent(row.excess)} longer than {self.peers}, and "
            f"{longest}.{_others(self.slow[1:])}"
        )


def _others(names: Sequence[str]) -> str:
    if not names:
        return ""
    said = f"ranks {some(names, MOST_NAMED)} are" if len(names) > 1 else f"rank {names[0]} is"
    return f" So {said}, less."


def rank_map(
    recording: Trace | StepLog, quantity: str | None = None, phase: PhaseSteps | None = None
) -> RankMap | None:
    """Compares the ranks of a recording.

    Args:
        quantity: column of the log; None: the one by which a rank stands out most, or the step.
        phase: steps that the ranks are judged by; None: all.

    Returns:
        The comparison; None where the recording has no ranks, or one alone.
    """
    found = _of_trace(recording) if isinstance(recording, Trace) else _of_log(recording)
    if found is None:
        return None
    ranks, group, peers = found
    known = ranks.quantities()
    levelled, named = (_levelled(ranks, group), COMPUTE) if isinstance(recording, Trace) else (ranks, "")
    steps = np.asarray(recording.steps)
    judged = np.ones(len(steps), bool) if phase is None else phase.holds(steps)
    slow = () if peers == OWN else slow_ranks(levelled.choose(judged))
    chosen = quantity if quantity in known else slow[0].part if slow else ""
    values = _table(ranks, known[chosen])
    middle = _middle(values, group)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.where(middle > 0, values / middle - 1.0, np.nan)
    rows = _rows(ranks.names, values[:, judged], excess[:, judged], group)
    shown = _shown(rows)
    blocks = np.array_split(np.arange(len(steps)), min(MOST_COLUMNS, len(steps)))
    of_shown = excess[[ranks.names.index(name) for name in shown]]
    return RankMap(
        quantity=chosen or named,
        quantities=tuple(name or named for name in known),
        rows=rows,
        shown=shown,
        steps=tuple(int(steps[block[0]]) for block in blocks),
        last_step=int(steps[-1]),
        n_per_column=max(len(block) for block in blocks),
        cells=np.stack([_over(np.nanmean, of_shown[:, block], 1) for block in blocks], axis=1),
        slow=_slow(rows, {one.rank for one in slow if one.part == chosen}, int(judged.sum())),
        peers=peers,
        when="" if phase is None else phase.words,
    )


Ranks: TypeAlias = tuple[
    RankTimes, NDArray[np.int64], str
]  # times, [rank] number of those with the same work, and these in words


def _of_log(log: StepLog) -> Ranks | None:
    ranks = log.ranks
    if ranks is None or len(ranks.names) < 2:
        return None
    return ranks, np.zeros(len(ranks.names), np.int64), "that of the middle rank"


def _of_trace(trace: Trace) -> Ranks | None:
    """Compute of the workers."""
    if trace.rank.size < 2:
        return None
    own_s = compute_s(trace).reshape(trace.rank.size, -1)
    stage = np.broadcast_to(np.arange(trace.n_stage), trace.rank.shape).ravel()
    place = {str(rank): i for i, rank in enumerate(trace.rank.ravel().tolist())}
    if len(place) < trace.rank.size:  # ranks that the source does not tell are all called alike
        place = {str(i): i for i in range(trace.rank.size)}
    names = tuple(natural_order(list(place)))
    order = [place[name] for name in names]
    n_rank, n_step = own_s.shape
    entry, rank = np.repeat(np.arange(n_step), n_rank), np.tile(np.arange(n_rank), n_step)
    ranks = RankTimes(names, entry, rank, own_s[order].T.ravel(), {})
    if trace.n_replica == 1:  # a stage has nobody to be compared with
        return ranks, np.arange(n_rank), OWN
    middle = "the mean of its" if trace.n_replica == 2 else "that of the middle rank of its"
    return ranks, stage[order], f"{middle} stage" if trace.n_stage > 1 else "that of the middle rank"


def _are_alone(group: NDArray[np.int64]) -> bool:
    return len(np.unique(group)) == len(group)


def _levelled(ranks: RankTimes, group: NDArray[np.int64]) -> RankTimes:
    """Times without what the kind of work adds, so that `slow_ranks` compares like with like."""
    values = _table(ranks, ranks.step_s)
    level = values - _middle(values, group) + np.median(values)
    return replace(ranks, step_s=level[ranks.rank, ranks.entry])


def _middle(values: Floats, group: NDArray[np.int64]) -> Floats:
    """[rank, entry] median of those with the same work; of a rank that is alone with its work, that of its steps."""
    if _are_alone(group):
        return np.broadcast_to(_over(np.nanmedian, values, 1)[:, None], values.shape)
    middle = np.full_like(values, np.nan)
    for one in np.unique(group):
        middle[group == one] = _over(np.nanmedian, values[group == one], 0)
    return middle


def _over(function: Callable[..., Floats], values: Floats, axis: int) -> Floats:
    """A statistic that leaves NaN out, and is NaN where there is nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return function(values, axis=axis)


def _table(ranks: RankTimes, seconds: Floats) -> Floats:
    """[rank, entry] seconds; NaN where there is no row."""
    found = np.full((len(ranks.names), int(ranks.entry.max()) + 1), np.nan)
    found[ranks.rank, ranks.entry] = seconds
    return found


def _rows(names: Sequence[str], values: Floats, excess: Floats, group: NDArray[np.int64]) -> tuple[RankRow, ...]:
    """All ranks, the slowest first."""
    medians, over = _over(np.nanmedian, values, 1), _over(np.nanmedian, excess, 1)
    most = np.full_like(values, np.nan)
    for one in np.unique(group):
        most[group == one] = _over(np.nanmax, values[group == one], 0)
    is_most = values == most
    for one in np.unique(group):  # where all are alike, none is the slowest
        is_most[group == one] &= (is_most[group == one].sum(axis=0) == 1) & ((group == one).sum() > 1)
    shares = is_most.sum(axis=1) / np.maximum(np.isfinite(values).sum(axis=1), 1)
    order: list[int] = np.lexsort((np.arange(len(names)), -np.nan_to_num(over, nan=-np.inf))).tolist()
    return tuple(RankRow(names[i], float(medians[i]), float(over[i]), float(shares[i])) for i in order)


def _slow(rows: Sequence[RankRow], told: Set[str], n_step: int) -> tuple[str, ...]:
    """Ranks that `slow_ranks` tells, or that are the longest so often, by so much, that chance does not make it."""
    lasting = n_step >= FEWEST_STEPS
    return tuple(
        row.rank
        for row in rows
        if row.rank in told or (lasting and row.slowest >= LASTING and row.excess >= SLOW_RANK_SHARE)
    )


def _shown(rows: Sequence[RankRow]) -> tuple[str, ...]:
    """The slowest ranks and a few of the others, in their natural order."""
    slowest, others = rows[:MOST_SLOW], rows[MOST_SLOW:]
    return tuple(natural_order([row.rank for row in (*slowest, *evenly(others, MOST_OTHERS))]))
