"""Local search: moves and swaps from several starts, every round all starts' neighbours in one batch.

A move gives a piece another code (another rank, rows spread, copies); a swap exchanges the codes of two pieces. First only
pieces of the ranks that a part of the step waits for are touched; where none of these neighbours is better, all of them are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ..._typing import Flags, Floats
from .evaluate import Objective, loads, values
from .task import ShardingTask

LEAST_GAIN = 1e-7  # of the value; smaller gains are rounding
UNEVEN = 3e-3  # weight of unevenness beside the objective
MOST_TARGETS = 12  # ranks with the least work that a piece may move to
MOST_NEIGHBOURS = 3000  # of one start in one round; where there are more, as many at random


@dataclass
class Start:
    """Where the search from one start stands.

    Attributes:
        codes: [piece] the best assignment.
        value: its objective, with a little for unevenness.
        last: whether the search ends where no neighbour is better; else it then touches all pieces.
        wide: whether all pieces are touched.
        done: whether no neighbour is better.
    """

    codes: Int[np.ndarray, " piece"]
    value: float
    last: bool = False
    wide: bool = False
    done: bool = False


def descend(
    task: ShardingTask,
    starts: Int[np.ndarray, "piece start"],
    objective: Objective,
    rng: np.random.Generator,
    most_rounds: int = 200,
    widen: bool = True,
) -> list[Start]:
    """Local optima, one per start, best first.

    Args:
        starts: assignments, as columns.
        most_rounds: bounds the time; a round improves every start once.
        widen: whether to touch all pieces where those of critical ranks no longer help.
    """
    value = values(task, starts, objective, UNEVEN)
    search = [Start(starts[:, i].copy(), float(value[i]), not widen) for i in range(starts.shape[1])]
    choices = task.choices()
    for _ in range(most_rounds):
        active = [start for start in search if not start.done]
        if not active:
            break
        blocks = [_neighbours(task, start, choices, rng) for start in active]
        found = values(task, np.concatenate(blocks, axis=1), objective, UNEVEN)
        edges = np.cumsum([block.shape[1] for block in blocks])
        for start, block, own in zip(active, blocks, np.split(found, edges[:-1]), strict=True):
            _step(start, block, own)
    return sorted(search, key=lambda start: start.value)


def _step(start: Start, block: Int[np.ndarray, "piece neighbour"], own: Floats) -> None:
    """Goes to the best neighbour if it is better; else widens the search, or ends it."""
    best = int(np.argmin(own)) if len(own) else -1
    if best >= 0 and own[best] < start.value * (1.0 - LEAST_GAIN):
        start.codes, start.value = block[:, best].copy(), float(own[best])
    elif start.last:
        start.done = True
    else:
        start.last = start.wide = True


def _neighbours(
    task: ShardingTask, start: Start, choices: list[Int[np.ndarray, " choice"]], rng: np.random.Generator
) -> Int[np.ndarray, "piece neighbour"]:
    """Moves and swaps of one start."""
    codes = start.codes
    touched = np.arange(len(codes)) if start.wide else _critical(task, codes)
    targets = _targets(task, codes)
    moved = np.array(
        [
            (piece, code)
            for piece in touched.tolist()
            for code in choices[piece]
            if code != codes[piece] and targets[code]
        ]
    )
    first, second = np.meshgrid(touched, np.arange(len(codes)), indexing="ij")
    is_swap = (codes[first] != codes[second]) & ((second > first) | ~np.isin(second, touched))
    swaps = np.stack([first[is_swap], second[is_swap]], axis=-1)
    n_move, n = len(moved), len(moved) + len(swaps)
    chosen = np.arange(n) if n <= MOST_NEIGHBOURS else np.sort(rng.choice(n, MOST_NEIGHBOURS, replace=False))
    moves, pairs = chosen[chosen < n_move], swaps[chosen[chosen >= n_move] - n_move]
    block = np.repeat(codes[:, None], len(chosen), axis=1)
    if len(moves):
        block[moved[moves, 0], np.arange(len(moves))] = moved[moves, 1]
    at = len(moves) + np.arange(len(pairs))
    block[pairs[:, 0], at], block[pairs[:, 1], at] = codes[pairs[:, 1]], codes[pairs[:, 0]]
    return block


def _targets(task: ShardingTask, codes: Int[np.ndarray, " piece"]) -> Flags:
    """[code] where pieces are moved to: the ranks with the least work, of which many are alike, and those that hold for all."""
    work = loads(task, codes[:, None]).seconds_s[0].mean(axis=-1).sum(axis=-1)
    found = np.ones(task.n_ranks + 2, bool)
    found[np.argsort(work, kind="stable")[MOST_TARGETS:]] = False
    return found


def _critical(task: ShardingTask, codes: Int[np.ndarray, " piece"]) -> Int[np.ndarray, " piece"]:
    """Pieces on the slowest rank of a part, on the rank that sends or holds most, and those that all ranks hold."""
    found = loads(task, codes[:, None])
    mean = found.seconds_s[0].mean(axis=-1)
    ranks = {*mean.argmax(axis=0).tolist(), int(found.sent_bytes[0].argmax()), int(found.held_bytes[0].argmax())}
    return np.flatnonzero(np.isin(codes, [*ranks, task.rows_code, task.copies_code]))
