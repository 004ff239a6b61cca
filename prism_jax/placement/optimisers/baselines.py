"""Assignments that need no search: as given, random, sorted; and every one of them, where there are few.

An assignment holds the node of every slot, then the nodes that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np

from ..._typing import Floats
from ..evaluator import Assignments, Problem

MOST_NODES = 12  # of which all arrangements could be few enough
MAX_EXHAUSTIVE = 25_000  # assignments: 8 nodes on 2 replicas


def as_given(problem: Problem) -> Assignments:
    """Node i in slot i; the last ones are left out [seat]."""
    return np.arange(problem.fleet.n_node, dtype=np.int32)


def random_assignments(problem: Problem, n: int, rng: np.random.Generator) -> Assignments:
    """[n, seat]."""
    return rng.permuted(np.tile(as_given(problem), (n, 1)), axis=1)


def sorted_assignments(problem: Problem, lane_weight: Floats) -> Assignments:
    """Slowest nodes left out, the next ones in the lightest lanes: across replicas, and one replica after the other [2, seat].

    Args:
        lane_weight: [lane] what a slow node costs there.
    """
    slots, n_slot = problem.slots, problem.slots.n_slot
    slowest_first = np.argsort(-problem.slowness, kind="stable").astype(np.int32)
    out, used = slowest_first[: problem.n_spare], slowest_first[problem.n_spare :]
    weight, replica = np.asarray(lane_weight)[slots.lanes], slots.replicas[:, 0]
    found = []
    for order in (np.lexsort((replica, weight)), np.lexsort((weight, replica))):
        seats = np.empty(n_slot, dtype=np.int32)
        seats[order] = used
        found.append(np.concatenate([seats, out]))
    return np.stack(found)


def busy_seconds(problem: Problem) -> Floats:
    """[lane] compute of a step's ops, seconds: the weight of a stage."""
    return problem.program.graph.compute_s.sum(axis=(0, 2))


def n_distinct(problem: Problem) -> int:
    """Assignments that differ: the order of spares and of replicas does not matter."""
    n, k = problem.fleet.n_node, problem.n_spare
    alike = factorial(problem.slots.n_replica) if _replicas_apart(problem) else 1
    return factorial(n) // factorial(k) // alike


def all_assignments(problem: Problem, most: int = MAX_EXHAUSTIVE) -> Assignments | None:
    """Every assignment that differs from the others [assignment, seat]; None if there are more than `most`."""
    if problem.fleet.n_node > MOST_NODES or n_distinct(problem) > most:
        return None
    n_slot, apart = problem.slots.n_slot, _replicas_apart(problem)
    replica = problem.slots.replicas[:, 0]
    first = [int(np.flatnonzero(replica == r)[0]) for r in range(problem.slots.n_replica)] if apart else []
    found = []
    for seats in _arrangements(problem.fleet.n_node, n_slot, first):
        out = sorted(set(range(problem.fleet.n_node)) - set(seats))
        found.append([*seats, *out])
    return np.array(found, dtype=np.int32)


def _arrangements(n_node: int, n_slot: int, increasing: list[int]) -> Iterator[list[int]]:
    """Nodes of the slots, one order of the replicas only: their first slots' nodes increase."""
    seats = [-1] * n_slot
    before = dict(zip(increasing[1:], increasing, strict=False))

    def fill(slot: int, free: frozenset[int]) -> Iterator[list[int]]:
        if slot == n_slot:
            yield list(seats)
            return
        for node in sorted(free):
            earlier = before.get(slot)
            if earlier is not None and seats[earlier] > node:
                continue
            seats[slot] = node
            yield from fill(slot + 1, free - {node})

    yield from fill(0, frozenset(range(n_node)))


def _replicas_apart(problem: Problem) -> bool:
    """Whether every slot belongs to one replica, so that replicas can change places."""
    return problem.slots.replicas.shape[1] == 1
