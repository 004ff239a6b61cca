"""Cutting tables finer: where one table decides the step, it is put on twice as many ranks, and the search goes on."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from .assignment import Assignment, recut
from .cut import Cut
from .evaluate import Objective, loads, values
from .local_search import descend
from .problem import ShardingProblem
from .sharders.base import greedy
from .sharders.lpt import predicted_s
from .task import WHOLE, ShardingTask

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
    """What the search makes of one more cut, from the old places and from the greedy rule."""
    cuts = (*best.cuts[:table], finer, *best.cuts[table + 1 :])
    task = problem.task(cuts)
    cost = predicted_s(task)
    starts = np.stack([greedy(task, cost, recut(best, cuts, problem.n_ranks)), greedy(task, cost)], axis=1)
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
