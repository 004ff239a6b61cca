"""Sharder: a rule that says which table goes where, and the greedy rule that most of them are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from ...._typing import Floats
from ..task import ROWS, WHOLE, ShardingTask

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
        """How results call it."""
        ...

    @property
    def about(self) -> str:
        """What it does, for people."""
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
