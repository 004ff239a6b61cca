"""Defines Sharder, a rule that says which table goes where, and the sharders by name, shipped and those that a caller adds.

Most are greedy. Some look at no costs (random, in turn, in runs), some balance the sizes of tables, or look-ups as they are or
weighed by the size of the table. LPT, longest processing time first, takes the milliseconds that the cost model predicts (Graham,
Bounds on multiprocessing timing anomalies, 1969: at most 4/3 - 1/(3n) times the optimum of one part).

Source of the first seven: the sharders of the universal performance model (arXiv 2404.12674) and of DreamShard (arXiv
2210.02023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.registry import Registry
from .task import ROWS, WHOLE, ShardingTask

Costs = Callable[[ShardingTask], Floats]


@runtime_checkable
class Sharder(Protocol):
    """A rule that says which piece goes where.

    Attributes:
        name: how results call it.
        about: what it does, for people.
    """

    @property
    def name(self) -> str:
        """Name in results."""
        ...

    @property
    def about(self) -> str:
        """Description of the sharder, for people."""
        ...

    def assign(self, task: ShardingTask, rng: np.random.Generator) -> Int[np.ndarray, " piece"]:
        """Codes of the pieces; an assignment need not fit into memory."""
        ...


@dataclass(frozen=True)
class Greedy:
    """Largest cost first, each to the rank with the least cost so far that has room (ties: the least memory, then the first)."""

    name: str
    about: str
    costs: Costs

    def assign(self, task: ShardingTask, rng: np.random.Generator) -> Int[np.ndarray, " piece"]:
        """Codes of the pieces; nothing is random."""
        return greedy(task, self.costs(task))


def greedy(
    task: ShardingTask, cost: Floats, fixed: Int[np.ndarray, " piece"] | None = None
) -> Int[np.ndarray, " piece"]:
    """The greedy rule. Pieces that fit nowhere are spread by rows where they may be, else over-fill a rank.

    Args:
        cost: [piece].
        fixed: codes of pieces that have their place, -1 for the others.
    """
    codes = np.full(len(cost), -1) if fixed is None else np.array(fixed)
    shared = codes >= task.n_ranks
    on_rank = np.where(shared | (codes < 0), task.n_ranks, codes)
    load = np.bincount(on_rank, cost, task.n_ranks + 1)[:-1]
    held = np.bincount(on_rank, task.held_bytes[WHOLE], task.n_ranks + 1)[:-1]
    held = held + task.held_bytes[task.codes_of_way(codes), np.arange(len(cost))][shared].sum()
    for piece in np.argsort(-cost, kind="stable"):
        if codes[piece] >= 0:
            continue
        size, siblings = task.held_bytes[WHOLE, piece], codes[task.pieces.table == task.pieces.table[piece]]
        has_room = held + size <= task.capacity_bytes
        if not (task.allowed[WHOLE, piece] and has_room.any()) and task.allowed[ROWS, piece]:
            codes[piece] = task.rows_code
            held += task.held_bytes[ROWS, piece]
            continue
        rank = np.lexsort((held, load, ~has_room, np.isin(np.arange(task.n_ranks), siblings)))[0]
        codes[piece] = rank
        load[rank] += cost[piece]
        held[rank] += size
    return codes


def size(task: ShardingTask) -> Floats:
    """[piece] rows x columns."""
    return task.pieces.rows * task.pieces.dims


def lookups(task: ShardingTask) -> Floats:
    """[piece] columns x look-ups per sample."""
    return task.pieces.dims * task.pieces.pooling


def norm_lookups(task: ShardingTask) -> Floats:
    """[piece] look-ups per sample, without the width of a row."""
    return task.pieces.pooling.astype(float)


def size_lookups(task: ShardingTask) -> Floats:
    """[piece] columns x look-ups per sample x log10 of the rows: large tables miss the caches."""
    return lookups(task) * np.log10(np.maximum(task.pieces.rows, 2.0))


def predicted_s(task: ShardingTask) -> Floats:
    """[piece] mean seconds of all parts of a step together, on the rank that holds it."""
    return task.seconds_s[WHOLE].max(axis=1).sum(axis=0).mean(axis=-1)


@dataclass(frozen=True)
class Blind:
    """A rule that looks at no costs: codes of so many pieces on so many ranks."""

    name: str
    about: str
    codes: Callable[[int, int, np.random.Generator], Int[np.ndarray, " piece"]]

    def assign(self, task: ShardingTask, rng: np.random.Generator) -> Int[np.ndarray, " piece"]:
        """Codes of the pieces."""
        return self.codes(len(task.pieces), task.n_ranks, rng)


SHIPPED: tuple[Sharder, ...] = (
    Blind("random", "every table on a random GPU", lambda n, n_ranks, rng: rng.integers(n_ranks, size=n)),
    Blind("naive", "tables in turn: table i on GPU i mod n", lambda n, n_ranks, _: np.arange(n) % n_ranks),
    Blind(
        "chunk", "runs of consecutive tables, equally many per GPU", lambda n, n_ranks, _: np.arange(n) * n_ranks // n
    ),
    Greedy("size_greedy", "largest table first, to the GPU with the fewest parameters", size),
    Greedy("lookup_greedy", "most bytes looked up first, to the GPU with the fewest", lookups),
    Greedy("norm_lookup_greedy", "most look-ups first, whatever their width", norm_lookups),
    Greedy("size_lookup_greedy", "bytes looked up x log10 of the rows, largest first", size_lookups),
    Greedy("lpt", "longest predicted milliseconds first, to the GPU with the least", predicted_s),
)
SHARDERS: Registry[Sharder] = Registry("sharder", lambda: SHIPPED, error=DataError)
