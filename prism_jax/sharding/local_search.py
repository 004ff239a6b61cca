"""Improves assignments by moves and swaps from several starts, every round all starts' neighbours in one batch.

A move gives a piece another code (another rank, rows spread, copies); a swap exchanges the codes of two pieces. First only pieces
of the ranks that a part of the step waits for are touched; where none of these neighbours is better, all of them are. Where one
table decides the step, it is cut finer, put on twice as many ranks, and the search goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ..core.arrays import Flags, Floats
from .assignment import Assignment, Objective, loads, recut, values
from .problem import Cut, ShardingProblem
from .sharders import greedy, predicted_s
from .task import WHOLE, ShardingTask

LEAST_GAIN = 1e-7  # of the value; smaller gains are rounding
UNEVEN = 3e-3  # weight of unevenness beside the objective
MOST_TARGETS = 12  # ranks with the least work that a piece may move to
MOST_NEIGHBOURS = 3000  # of one start in one round; where there are more, as many at random


@dataclass
class Start:
    """State of the search from one start.

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


MOST_TRIED = 3  # tables that are cut in one round
MOST_ROUNDS = 24


def first_cuts(problem: ShardingProblem) -> tuple[Cut, ...]:
    """No cuts, but for tables that no rank has room for, whole or by rows: as few parts as fit, as far as they can be cut."""
    cuts = list(problem.uncut)
    task = problem.task(cuts)
    room = np.where(task.allowed, task.held_bytes, np.inf).min(axis=0) <= task.capacity_bytes
    for table in np.flatnonzero(~room).tolist():
        size = task.held_bytes[WHOLE, table]
        while size / (cuts[table].columns * cuts[table].rows) > task.capacity_bytes and (
            finer := problem.finer(table, cuts[table])
        ):
            cuts[table] = finer[0]
    problem.task(cuts).check()
    return tuple(cuts)


def cut_further(
    problem: ShardingProblem, best: Assignment, objective: Objective, rng: np.random.Generator
) -> Assignment:
    """The best assignment after cutting, as long as cuts of the tables that weigh most make the noise-free step faster."""
    value = float(values(problem.task(best.cuts), best.columns, objective)[0])
    for _ in range(MOST_ROUNDS):
        found = [
            (own, codes)
            for table in _heaviest(problem.task(best.cuts), best)
            for finer in problem.finer(table, best.cuts[table])
            for own, codes in [_tried(problem, best, table, finer, objective, rng)]
        ]
        if not found or min(found, key=lambda one: one[0])[0] >= value * (1.0 - 1e-6):
            return best
        value, best = min(found, key=lambda one: one[0])
    return best


def _tried(
    problem: ShardingProblem, best: Assignment, table: int, finer: Cut, objective: Objective, rng: np.random.Generator
) -> tuple[float, Assignment]:
    """Searches with one more cut, from the old places and from the greedy rule."""
    cuts = (*best.cuts[:table], finer, *best.cuts[table + 1 :])
    task = problem.task(cuts)
    cost = predicted_s(task)
    starts = np.stack([greedy(task, cost, recut(best, cuts)), greedy(task, cost)], axis=1)
    codes = np.stack([start.codes for start in descend(task, starts, objective, rng)], axis=1)
    own = values(task, codes, objective)
    return float(own.min()), Assignment(cuts, tuple(codes[:, own.argmin()].tolist()))


def _heaviest(task: ShardingTask, best: Assignment) -> list[int]:
    """Tables with the longest pieces among those on ranks that a part waits for, or that send most; then tables held by all."""
    codes = np.array(best.codes)
    found = loads(task, best.columns)
    slowest = {*found.seconds_s[0].mean(axis=-1).argmax(axis=0).tolist(), int(found.sent_bytes[0].argmax())}
    seconds = predicted_s(task) + np.isin(codes, [*slowest]) * 1e3
    order: Int[np.ndarray, " piece"] = task.pieces.table[np.argsort(-seconds, kind="stable")]
    return list(dict.fromkeys(order.tolist()))[:MOST_TRIED]
